#include "pipelink.cuh"
namespace pl = pipelink;
using namespace pl::types;

// tests/cases/ctc.plir:5: %ext[b, s]  = select(s mod 2 == 0, blank, %labels[b, s floordiv 2])
extern "C" __global__ void __launch_bounds__(256)
ctc_loss_1_ext(const int* __restrict__ labels, int* __restrict__ ext, const index_t T, const index_t B,
    const index_t C, const index_t L) {
  const index_t i_1 = 2 * L + 1;
  const index_t v = pl::max(i_1, 0);
  const bool aligned = pl::aligned(ext, 16);
  const index_t v_5 = v * pl::max(B, 0);
  const bool v_6 = v_5 < 262144;
  const index_t v_8 = v_6 ? v_5 : pl::quot(v_5 + 7, 8);
  const bool v_10 = aligned && pl::rest(v, 4) == 0 && !v_6;
  const index_t i_4 = 4 * v_8;
  const index_t v_19 = v_6 ? 1 : 8;
  for (index_t b_s = pl::grid_thread(); b_s < v_8; b_s += pl::grid_threads()) {
    const index_t i_5 = 4 * b_s;
    if (v_10 && i_4 + i_5 + 4 <= v_5) {
      int ext_own[8];
      PL_UNROLL
      for (index_t r = 0; r < 2; r++) {
        const index_t i_10 = i_5 + 4 * (r * v_8);
        const index_t i_11 = 4 * r;
        const index_t s = pl::rest(i_10, i_1);
        const index_t v_13 = pl::quot(i_10, i_1);
        const index_t v_17 = L * v_13;
        PL_UNROLL
        for (index_t d = 0; d < 4; d++) {
          const index_t i_12 = d + s;
          int r_1 = 0;
          if (pl::mod(i_12, 2) == 0) {
            r_1 = 0;
          } else {
            r_1 = labels[pl::floordiv(i_12, 2) + v_17];
          }
          ext_own[d + i_11] = r_1;
        }
        pl::store_many<4>(&ext[s + i_1 * v_13], &ext_own[i_11]);
      }
    } else {
      for (index_t m = 0; m < v_19; m++) {
        const index_t v_24 = v_10 ? 4 * (pl::quot(m, 4) * v_8) + i_5 + pl::rest(m, 4) : b_s + m * v_8;
        if (v_24 < v_5) {
          const index_t s_1 = pl::rest(v_24, i_1);
          const index_t v_26 = pl::quot(v_24, i_1);
          const index_t v_30 = L * v_26;
          int r_2 = 0;
          if (pl::mod(s_1, 2) == 0) {
            r_2 = 0;
          } else {
            r_2 = labels[pl::floordiv(s_1, 2) + v_30];
          }
          ext[s_1 + i_1 * v_26] = r_2;
        }
      }
    }
  }
}

// tests/cases/ctc.plir:6: %skip[b, s] = s >= 2 and s mod 2 == 1 and %ext[b, s] != %ext[b, s-2]
extern "C" __global__ void __launch_bounds__(256)
ctc_loss_1_skip(const int* __restrict__ ext, bool* __restrict__ skip, const index_t T, const index_t B,
    const index_t C, const index_t L) {
  const index_t i_1 = 2 * L + 1;
  const index_t v = pl::max(i_1, 0);
  const index_t v_1 = pl::floordiv(v + 3, 4);
  const bool aligned = pl::aligned(skip, 4);
  const bool v_15 = aligned && pl::rest(v, 4) == 0;
  for (index_t run = pl::grid_thread(), run_end = v_1 * pl::max(B, 0); run < run_end; run += pl::grid_threads()) {
    const index_t v_4 = pl::rest(run, v_1);
    const index_t i_3 = 4 * v_4;
    const index_t v_7 = i_1 * pl::quot(run, v_1);
    const index_t i_7 = i_3 + v_7;
    const bool v_8 = i_3 + 1 >= 2;
    const index_t i_8 = i_7 + 1;
    const index_t i_10 = i_7 - 1;
    const bool v_11 = i_3 + 3 >= 2;
    const index_t i_12 = i_7 + 3;
    if (v_15) {
      bool skips[4];
      skips[0] = false;
      bool r = false;
      if (v_8) {
        r = ext[i_8] != ext[i_10];
      } else {
        r = false;
      }
      skips[1] = r;
      skips[2] = false;
      bool r_1 = false;
      if (v_11) {
        r_1 = ext[i_12] != ext[i_8];
      } else {
        r_1 = false;
      }
      skips[3] = r_1;
      pl::store_many<4>(&skip[i_7], &skips[0]);
    } else {
      for (index_t place = v_4; place < i_1; place += v_1) {
        const index_t i_13 = place + v_7;
        const index_t i_15 = i_13 - 2;
        bool r_2 = false;
        if (place >= 2 && pl::mod(place, 2) == 1) {
          r_2 = ext[i_13] != ext[i_15];
        } else {
          r_2 = false;
        }
        skip[i_13] = r_2;
      }
    }
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
  const bool aligned = pl::aligned(loss, 16);
  const index_t v_2 = pl::max(B, 0);
  const bool v_3 = v_2 < 262144;
  const index_t v_5 = v_3 ? v_2 : pl::quot(v_2 + 7, 8);
  const bool v_7 = pl::aligned(lab_len, 16) && (aligned && pl::aligned(in_len, 16)) && !v_3;
  const index_t i_2 = 4 * v_5;
  const index_t i_17 = 2 * L + 1;
  const index_t stride = B * i_17;
  const index_t v_49 = v_3 ? 1 : 8;
  for (index_t b = pl::grid_thread(); b < v_5; b += pl::grid_threads()) {
    const index_t i_3 = 4 * b;
    const index_t i_18 = 4 * (b * i_17);
    if (v_7 && i_2 + i_3 + 4 <= v_2) {
      int in_len_own[8];
      int lab_len_own[8];
      float loss_own[8];
      PL_UNROLL
      for (index_t r = 0; r < 2; r++) {
        const index_t i_8 = i_3 + 4 * (r * v_5);
        const index_t i_9 = 4 * r;
        pl::load_many<4>(&in_len_own[i_9], &in_len[i_8]);
        pl::load_many<4>(&lab_len_own[i_9], &lab_len[i_8]);
      }
      PL_UNROLL
      for (index_t r_1 = 0; r_1 < 2; r_1++) {
        const index_t v_10 = r_1 * v_5;
        const index_t i_13 = 4 * r_1;
        const index_t i_21 = i_18 + 4 * (i_17 * v_10);
        PL_UNROLL
        for (index_t d = 0; d < 4; d++) {
          const index_t i_15 = d + i_13;
          const int in_len_2 = in_len_own[i_15];
          const int lab_len_2 = lab_len_own[i_15];
          const i64 v_12 = i64(pl::sub(in_len_2, 1));
          const int v_13 = pl::mul(2, lab_len_2);
          const i64 v_14 = i64(v_13);
          const bool v_17 = v_12 >= 0 && v_12 < T;
          const bool v_20 = v_14 >= 0 && v_14 < i_17;
          const index_t v_23 = d * i_17;
          const i64 v_25 = pl::mul(stride, v_12);
          const i64 i_25 = pl::add(i_21 + v_14 + v_23, v_25);
          float r_2 = 0.0f;
          if (v_17 && v_20) {
            r_2 = alpha[i_25];
          } else {
            if (!v_17) {
              pl::fail(status, 2, v_12, T);
            }
            if (!v_20) {
              pl::fail(status, 3, v_14, i_17);
            }
            r_2 = 0.0f;
          }
          const i64 v_30 = i64(pl::sub(v_13, 1));
          const bool v_31 = v_30 >= 0;
          const bool v_32 = v_30 < i_17;
          const i64 i_28 = pl::add(pl::add(i_21 + v_23, v_25), v_30);
          float r_4 = 0.0f;
          if (lab_len_2 > 0) {
            const bool v_33 = v_31 && v_32;
            float r_3 = 0.0f;
            if (v_17 && v_33) {
              r_3 = alpha[i_28];
            } else {
              if (!v_17) {
                pl::fail(status, 4, v_12, T);
              }
              if (!v_33) {
                pl::fail(status, 5, v_30, i_17);
              }
              r_3 = 0.0f;
            }
            r_4 = r_3;
          } else {
            r_4 = -pl::inf();
          }
          const bool v_38 = r_2 == r_4;
          const float v_39 = 0.6931472f + r_2;
          const float v_40 = pl::max(r_2, r_4);
          const float v_41 = r_2 - r_4;
          loss_own[i_15] = -(v_38 ? v_39 : v_40 + pl::log1p(pl::exp(-pl::abs(v_41))));
        }
        pl::store_many<4>(&loss[4 * v_10 + i_3], &loss_own[i_13]);
      }
    } else {
      for (index_t m = 0; m < v_49; m++) {
        const index_t v_54 = v_7 ? i_3 + 4 * (v_5 * pl::quot(m, 4)) + pl::rest(m, 4) : b + m * v_5;
        const index_t v_67 = i_17 * v_54;
        if (v_54 < v_2) {
          const i64 v_57 = i64(pl::sub(in_len[v_54], 1));
          const int lab_len_1 = lab_len[v_54];
          const int v_58 = pl::mul(2, lab_len_1);
          const i64 v_59 = i64(v_58);
          const bool v_62 = v_57 >= 0 && v_57 < T;
          const bool v_65 = v_59 >= 0 && v_59 < i_17;
          const i64 v_68 = pl::mul(stride, v_57);
          const i64 i_35 = pl::add(v_59 + v_67, v_68);
          float r_5 = 0.0f;
          if (v_62 && v_65) {
            r_5 = alpha[i_35];
          } else {
            if (!v_62) {
              pl::fail(status, 2, v_57, T);
            }
            if (!v_65) {
              pl::fail(status, 3, v_59, i_17);
            }
            r_5 = 0.0f;
          }
          const i64 v_73 = i64(pl::sub(v_58, 1));
          const bool v_74 = v_73 >= 0;
          const bool v_75 = v_73 < i_17;
          const i64 i_38 = pl::add(pl::add(v_67, v_68), v_73);
          float r_7 = 0.0f;
          if (lab_len_1 > 0) {
            const bool v_76 = v_74 && v_75;
            float r_6 = 0.0f;
            if (v_62 && v_76) {
              r_6 = alpha[i_38];
            } else {
              if (!v_62) {
                pl::fail(status, 4, v_57, T);
              }
              if (!v_76) {
                pl::fail(status, 5, v_73, i_17);
              }
              r_6 = 0.0f;
            }
            r_7 = r_6;
          } else {
            r_7 = -pl::inf();
          }
          const bool v_81 = r_5 == r_7;
          const float v_82 = 0.6931472f + r_5;
          const float v_83 = pl::max(r_5, r_7);
          const float v_84 = r_5 - r_7;
          loss[v_54] = -(v_81 ? v_82 : v_83 + pl::log1p(pl::exp(-pl::abs(v_84))));
        }
      }
    }
  }
}
