#include "pipelink.cuh"
namespace pl = pipelink;
using namespace pl::types;

// tests/cases/ctc.plir:5: %ext[b, s]  = select(s mod 2 == 0, blank, %labels[b, s floordiv 2])
extern "C" __global__ void __launch_bounds__(256)
ctc_loss_1_ext(const int* __restrict__ labels, int* __restrict__ ext, const index_t T, const index_t B,
    const index_t C, const index_t L) {
  const index_t i_1 = 2 * L + 1;
  for (index_t b_s = pl::grid_thread(), b_s_end = pl::max(B, 0) * pl::max(i_1, 0); b_s < b_s_end;
      b_s += pl::grid_threads()) {
    const index_t s = pl::rest(b_s, i_1);
    const index_t v_3 = pl::quot(b_s, i_1);
    const index_t v_7 = L * v_3;
    int r = 0;
    if (pl::mod(s, 2) == 0) {
      r = 0;
    } else {
      r = labels[pl::floordiv(s, 2) + v_7];
    }
    ext[s + i_1 * v_3] = r;
  }
}

// tests/cases/ctc.plir:6: %skip[b, s] = s >= 2 and s mod 2 == 1 and %ext[b, s] != %ext[b, s-2]
extern "C" __global__ void __launch_bounds__(256)
ctc_loss_1_skip(const int* __restrict__ ext, bool* __restrict__ skip, const index_t T, const index_t B,
    const index_t C, const index_t L) {
  const index_t i_1 = 2 * L + 1;
  for (index_t b_s = pl::grid_thread(), b_s_end = pl::max(B, 0) * pl::max(i_1, 0); b_s < b_s_end;
      b_s += pl::grid_threads()) {
    const index_t s = pl::rest(b_s, i_1);
    const index_t i_2 = s + i_1 * pl::quot(b_s, i_1);
    const index_t i_4 = i_2 - 2;
    bool r = false;
    if (s >= 2 && pl::mod(s, 2) == 1) {
      r = ext[i_2] != ext[i_4];
    } else {
      r = false;
    }
    skip[i_2] = r;
  }
}

// tests/cases/ctc.plir:8: %alpha[0, b, s < 2*L+1] = select(s < 2, %logp[0, b, %ext[b, s]], -inf)
// tests/cases/ctc.plir:9: %alpha[t < T, b, s < 2*L+1] = %logp[t, b, %ext[b, s]] + logaddexp(
extern "C" __global__ void __launch_bounds__(256)
ctc_loss_1_alpha(const float* __restrict__ logp, const int* __restrict__ ext, const bool* __restrict__ skip,
    float* __restrict__ alpha, const index_t T, const index_t B, const index_t C, const index_t L, pl::Status* status) {
  const index_t v_1 = pl::min(1, T);
  const index_t i_1 = 2 * L + 1;
  const index_t v_3 = pl::max(i_1, 0);
  const index_t stride = B * C;
  const index_t stride_1 = B * i_1;
  const index_t i_11 = -stride_1;
  for (index_t lane = pl::block(), lane_end = pl::max(B, 0); lane < lane_end; lane += pl::blocks()) {
    const index_t v_5 = i_1 * lane;
    const index_t v_10 = C * lane;
    const index_t i_13 = i_11 + v_5;
    for (index_t t = 0; t < T; t++) {
      const index_t v_13 = stride_1 * t;
      const index_t i_4 = v_13 + v_5;
      if (t < v_1) {
        for (index_t s = pl::thread(); s < v_3; s += pl::threads()) {
          const index_t i_2 = s + v_5;
          float r_1 = 0.0f;
          if (s < 2) {
            const i64 v_6 = i64(ext[i_2]);
            const bool v_9 = v_6 >= 0 && v_6 < C;
            const i64 i_3 = v_10 + v_6;
            float r = 0.0f;
            if (v_9) {
              r = logp[i_3];
            } else {
              if (!v_9) {
                pl::fail(status, 0, v_6, C);
              }
              r = 0.0f;
            }
            r_1 = r;
          } else {
            r_1 = -pl::inf();
          }
          alpha[i_4 + s] = r_1;
        }
      }
      const index_t i_8 = v_10 + stride * t;
      const index_t i_14 = i_13 + v_13;
      if (t >= 1) {
        for (index_t s_1 = pl::thread(); s_1 < v_3; s_1 += pl::threads()) {
          const index_t i_6 = s_1 + v_5;
          const i64 v_15 = i64(ext[i_6]);
          const bool v_18 = v_15 >= 0 && v_15 < C;
          const i64 i_9 = i_8 + v_15;
          float r_2 = 0.0f;
          if (v_18) {
            r_2 = logp[i_9];
          } else {
            if (!v_18) {
              pl::fail(status, 1, v_15, C);
            }
            r_2 = 0.0f;
          }
          const index_t i_15 = i_14 + s_1;
          const float alpha_2 = alpha[i_15];
          const index_t i_18 = i_15 - 1;
          float r_3 = 0.0f;
          if (s_1 >= 1) {
            const float alpha_1 = alpha[i_18];
            r_3 = alpha_1;
          } else {
            r_3 = -pl::inf();
          }
          const bool v_23 = alpha_2 == r_3;
          const float v_25 = pl::max(alpha_2, r_3);
          const float v_26 = alpha_2 - r_3;
          const float v_32 = v_23 ? 0.6931472f + alpha_2 : v_25 + pl::log1p(pl::exp(-pl::abs(v_26)));
          const index_t i_21 = i_15 - 2;
          float r_4 = 0.0f;
          if (skip[i_6]) {
            const float alpha_2_2 = alpha[i_21];
            r_4 = alpha_2_2;
          } else {
            r_4 = -pl::inf();
          }
          const bool v_34 = r_4 == v_32;
          const float v_36 = pl::max(v_32, r_4);
          const float v_37 = v_32 - r_4;
          const float v_44 = r_2 + (v_34 ? 0.6931472f + v_32 : v_36 + pl::log1p(pl::exp(-pl::abs(v_37))));
          alpha[i_4 + s_1] = v_44;
        }
      }
      __syncthreads();
    }
  }
}

// tests/cases/ctc.plir:12: %loss[b] = -logaddexp(%alpha[%in_len[b] - 1, b, 2*%lab_len[b]],
extern "C" __global__ void __launch_bounds__(256)
ctc_loss_1_loss(const int* __restrict__ in_len, const int* __restrict__ lab_len, float* __restrict__ loss,
    const float* __restrict__ alpha, const index_t T, const index_t B, const index_t C, const index_t L,
    pl::Status* status) {
  const index_t i_1 = 2 * L + 1;
  const index_t stride = B * i_1;
  for (index_t b = pl::grid_thread(), b_end = pl::max(B, 0); b < b_end; b += pl::grid_threads()) {
    const i64 v_2 = i64(pl::sub(in_len[b], 1));
    const int lab_len_2 = lab_len[b];
    const int v_3 = pl::mul(2, lab_len_2);
    const i64 v_4 = i64(v_3);
    const bool v_7 = v_2 >= 0 && v_2 < T;
    const bool v_10 = v_4 >= 0 && v_4 < i_1;
    const i64 i_3 = pl::add(b * i_1, pl::mul(stride, v_2));
    const i64 i_4 = pl::add(i_3, v_4);
    float r = 0.0f;
    if (v_10 && v_7) {
      r = alpha[i_4];
    } else {
      if (!v_7) {
        pl::fail(status, 2, v_2, T);
      }
      if (!v_10) {
        pl::fail(status, 3, v_4, i_1);
      }
      r = 0.0f;
    }
    const i64 v_18 = i64(pl::sub(v_3, 1));
    const bool v_19 = v_18 >= 0;
    const bool v_20 = v_18 < i_1;
    const i64 i_6 = pl::add(i_3, v_18);
    float r_2 = 0.0f;
    if (lab_len_2 > 0) {
      const bool v_21 = v_19 && v_20;
      float r_1 = 0.0f;
      if (v_21 && v_7) {
        r_1 = alpha[i_6];
      } else {
        if (!v_7) {
          pl::fail(status, 4, v_2, T);
        }
        if (!v_21) {
          pl::fail(status, 5, v_18, i_1);
        }
        r_1 = 0.0f;
      }
      r_2 = r_1;
    } else {
      r_2 = -pl::inf();
    }
    const bool v_26 = r == r_2;
    const float v_27 = 0.6931472f + r;
    const float v_28 = pl::max(r, r_2);
    const float v_29 = r - r_2;
    loss[b] = -(v_26 ? v_27 : v_28 + pl::log1p(pl::exp(-pl::abs(v_29))));
  }
}
