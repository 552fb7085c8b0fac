#include "pipelink.cuh"
namespace pl = pipelink;
using namespace pl::types;

// tests/cases/rows.plir:16: %y[..., k] = (%x[..., k] - %mu[...]) * rsqrt(%var[...] + eps) * %g[k] + %b[k]
extern "C" __global__ void __launch_bounds__(1024)
layer_norm_softmax_relu6_n(const float* __restrict__ x, const float* __restrict__ g, const float* __restrict__ b,
    float* __restrict__ n, const index_t D0, const index_t K) {
  const index_t v = pl::max(K, 0);
  const index_t threads = pl::threads();
  const bool v_4 = pl::rest(pl::max(v, 0), 4) == 0;
  const bool v_5 = v <= 512 && v_4;
  const index_t v_7 = v_5 ? pl::quot(threads, 32) : 1;
  const bool v_11 = pl::rest(v, 4) == 0;
  const bool aligned_3 = pl::aligned(n, 16);
  const bool v_17 = aligned_3
      && (pl::aligned(g, 16)
      && (pl::aligned(b, 16) && (pl::aligned(x, 16) && (v_11 && (v_11 && (v_4 && v <= 16384))))));
  const index_t v_20 = K > 0 ? pl::max(D0, 0) : 0;
  for (index_t d0 = pl::block(), d0_end = pl::quot(v_20 + v_7 - 1, v_7); d0 < d0_end; d0 += pl::blocks()) {
    const index_t v_24 = d0 * v_7;
    const index_t v_33 = K * v_24;
    const index_t v_61 = pl::min(v_24 + v_7, v_20);
    if (v_17) {
      const index_t v_23 = v_5 ? pl::quot(pl::thread(), 32) : 0;
      const index_t v_26 = v_23 + v_24 < v_20 ? v : 0;
      float x_row[16] = {};
      const index_t i_12 = K * v_23 + v_33;
      {
        const index_t t = pl::thread();
        const index_t v_28 = v_5 ? pl::rest(t, 32) : t;
        const index_t i_6 = 512 * pl::quot(v_28, 32);
        const index_t i_7 = 4 * pl::rest(v_28, 32);
        const index_t i_8 = i_6 + i_7;
        const index_t i_14 = i_12 + i_6 + i_7;
        PL_UNROLL
        for (index_t r = 0; r < 4; r++) {
          const index_t i_9 = 128 * r;
          const index_t i_11 = 4 * r;
          const index_t i_15 = i_14 + i_9;
          if (i_8 + i_9 < v_26) {
            pl::load_many<4>(&x_row[i_11], &x[i_15]);
          }
        }
      }
      float sum = 0.0f;
      {
        const index_t t_1 = pl::thread();
        const index_t v_35 = v_5 ? pl::rest(t_1, 32) : t_1;
        const index_t i_20 = 512 * pl::quot(v_35, 32) + 4 * pl::rest(v_35, 32);
        PL_UNROLL
        for (index_t r_1 = 0; r_1 < 4; r_1++) {
          const index_t i_23 = 4 * r_1;
          if (i_20 + 128 * r_1 < v_26) {
            PL_UNROLL
            for (index_t d = 0; d < 4; d++) {
              const float x_2 = x_row[d + i_23];
              sum += x_2;
            }
          }
        }
      }
      sum = v_5 ? pl::lanes_sum(sum) : pl::block_sum(sum);
      const float v_40 = float(v);
      const float v_41 = sum / v_40;
      float sum_1 = 0.0f;
      {
        const index_t t_2 = pl::thread();
        const index_t v_43 = v_5 ? pl::rest(t_2, 32) : t_2;
        const index_t i_34 = 512 * pl::quot(v_43, 32) + 4 * pl::rest(v_43, 32);
        PL_UNROLL
        for (index_t r_2 = 0; r_2 < 4; r_2++) {
          const index_t i_37 = 4 * r_2;
          if (i_34 + 128 * r_2 < v_26) {
            PL_UNROLL
            for (index_t d_1 = 0; d_1 < 4; d_1++) {
              const float x_1 = x_row[d_1 + i_37];
              const float v_47 = x_1 - v_41;
              sum_1 += v_47 * v_47;
            }
          }
        }
      }
      sum_1 = v_5 ? pl::lanes_sum(sum_1) : pl::block_sum(sum_1);
      const float v_49 = sum_1 / v_40;
      const float v_57 = pl::rsqrt(1e-5f + v_49);
      {
        const index_t t_3 = pl::thread();
        const index_t v_51 = v_5 ? pl::rest(t_3, 32) : t_3;
        const index_t i_46 = 512 * pl::quot(v_51, 32);
        const index_t i_47 = 4 * pl::rest(v_51, 32);
        const index_t i_48 = i_46 + i_47;
        const index_t i_55 = i_47 + (i_12 + i_46);
        PL_UNROLL
        for (index_t r_3 = 0; r_3 < 4; r_3++) {
          const index_t i_49 = 128 * r_3;
          const index_t i_50 = i_48 + i_49;
          const index_t i_51 = 4 * r_3;
          const index_t i_56 = i_49 + i_55;
          if (i_50 < v_26) {
            float b_row[4];
            float g_row[4];
            float n_own[4];
            pl::load_many<4>(&b_row[0], &b[i_50]);
            pl::load_many<4>(&g_row[0], &g[i_50]);
            PL_UNROLL
            for (index_t d_2 = 0; d_2 < 4; d_2++) {
              const float x_2_2 = x_row[d_2 + i_51];
              const float b_2 = b_row[d_2];
              const float g_2 = g_row[d_2];
              n_own[d_2] = b_2 + g_2 * ((x_2_2 - v_41) * v_57);
            }
            pl::store_many<4>(&n[i_56], &n_own[0]);
          }
        }
      }
    } else {
      const double v_64 = double(v);
      for (index_t place = v_24; place < v_61; place++) {
        double sum_2 = 0.0;
        const index_t v_63 = K * place;
        for (index_t round = 0; round < v; round += 8192) {
          float part = 0.0f;
          for (index_t k = round + pl::thread(), k_end = pl::min(round + 8192, v); k < k_end; k += pl::threads()) {
            part += x[k + v_63];
          }
          sum_2 += double(part);
        }
        sum_2 = pl::block_sum(sum_2);
        const double v_65 = sum_2 / v_64;
        const float v_66 = float(v_65);
        double sum_3 = 0.0;
        for (index_t round_1 = 0; round_1 < v; round_1 += 8192) {
          float part_1 = 0.0f;
          for (index_t k_1 = round_1 + pl::thread(), k_1_end = pl::min(round_1 + 8192, v); k_1 < k_1_end;
              k_1 += pl::threads()) {
            const float v_68 = x[k_1 + v_63] - v_66;
            part_1 += v_68 * v_68;
          }
          sum_3 += double(part_1);
        }
        sum_3 = pl::block_sum(sum_3);
        const double v_70 = sum_3 / v_64;
        const float v_74 = pl::rsqrt(1e-5f + float(v_70));
        for (index_t k_2 = pl::thread(); k_2 < v; k_2 += pl::threads()) {
          const index_t i_63 = k_2 + v_63;
          n[i_63] = b[k_2] + g[k_2] * ((x[i_63] - v_66) * v_74);
        }
      }
    }
  }
}

// tests/cases/rows.plir:7: %y[..., k] = %e[..., k] / %s[...]
extern "C" __global__ void __launch_bounds__(1024)
layer_norm_softmax_relu6_y(float* __restrict__ y, const float* __restrict__ n, const index_t D0, const index_t K) {
  const index_t v = pl::max(K, 0);
  const index_t threads = pl::threads();
  const bool v_4 = pl::rest(pl::max(v, 0), 4) == 0;
  const bool v_5 = v <= 512 && v_4;
  const index_t v_7 = v_5 ? pl::quot(threads, 32) : 1;
  const bool v_11 = pl::rest(v, 4) == 0;
  const bool aligned_1 = pl::aligned(y, 16);
  const bool v_15 = aligned_1 && (pl::aligned(n, 16) && (v_11 && (v_11 && (v_4 && v <= 16384))));
  const index_t v_18 = K > 0 ? pl::max(D0, 0) : 0;
  for (index_t d0 = pl::block(), d0_end = pl::quot(v_18 + v_7 - 1, v_7); d0 < d0_end; d0 += pl::blocks()) {
    const index_t v_22 = d0 * v_7;
    const index_t v_31 = K * v_22;
    const index_t v_50 = pl::min(v_22 + v_7, v_18);
    if (v_15) {
      float e_row[16] = {};
      const index_t v_21 = v_5 ? pl::quot(pl::thread(), 32) : 0;
      const index_t v_24 = v_21 + v_22 < v_18 ? v : 0;
      float n_row[16] = {};
      const index_t i_12 = K * v_21 + v_31;
      {
        const index_t t = pl::thread();
        const index_t v_26 = v_5 ? pl::rest(t, 32) : t;
        const index_t i_6 = 512 * pl::quot(v_26, 32);
        const index_t i_7 = 4 * pl::rest(v_26, 32);
        const index_t i_8 = i_6 + i_7;
        const index_t i_14 = i_12 + i_6 + i_7;
        PL_UNROLL
        for (index_t r = 0; r < 4; r++) {
          const index_t i_9 = 128 * r;
          const index_t i_11 = 4 * r;
          const index_t i_15 = i_14 + i_9;
          if (i_8 + i_9 < v_24) {
            pl::load_many<4>(&n_row[i_11], &n[i_15]);
          }
        }
      }
      float max = -pl::inf();
      {
        const index_t t_1 = pl::thread();
        const index_t v_33 = v_5 ? pl::rest(t_1, 32) : t_1;
        const index_t i_20 = 512 * pl::quot(v_33, 32) + 4 * pl::rest(v_33, 32);
        PL_UNROLL
        for (index_t r_1 = 0; r_1 < 4; r_1++) {
          const index_t i_23 = 4 * r_1;
          if (i_20 + 128 * r_1 < v_24) {
            PL_UNROLL
            for (index_t d = 0; d < 4; d++) {
              const float n_2 = n_row[d + i_23];
              max = pl::max(max, n_2);
            }
          }
        }
      }
      max = v_5 ? pl::lanes_max(max) : pl::block_max(max);
      float sum = 0.0f;
      {
        const index_t t_2 = pl::thread();
        const index_t v_38 = v_5 ? pl::rest(t_2, 32) : t_2;
        const index_t i_34 = 512 * pl::quot(v_38, 32) + 4 * pl::rest(v_38, 32);
        PL_UNROLL
        for (index_t r_2 = 0; r_2 < 4; r_2++) {
          const index_t i_37 = 4 * r_2;
          if (i_34 + 128 * r_2 < v_24) {
            PL_UNROLL
            for (index_t d_1 = 0; d_1 < 4; d_1++) {
              const index_t i_39 = d_1 + i_37;
              const float n_1 = n_row[i_39];
              const float v_42 = n_1 - max;
              const float v_43 = pl::exp(v_42);
              sum += v_43;
              e_row[i_39] = v_43;
            }
          }
        }
      }
      sum = v_5 ? pl::lanes_sum(sum) : pl::block_sum(sum);
      const float by = pl::inverse(sum);
      {
        const index_t t_3 = pl::thread();
        const index_t v_45 = v_5 ? pl::rest(t_3, 32) : t_3;
        const index_t i_46 = 512 * pl::quot(v_45, 32);
        const index_t i_47 = 4 * pl::rest(v_45, 32);
        const index_t i_48 = i_46 + i_47;
        const index_t i_55 = i_47 + (i_12 + i_46);
        PL_UNROLL
        for (index_t r_3 = 0; r_3 < 4; r_3++) {
          const index_t i_49 = 128 * r_3;
          const index_t i_51 = 4 * r_3;
          const index_t i_56 = i_49 + i_55;
          if (i_48 + i_49 < v_24) {
            float y_own[4];
            bool doubt = false;
            PL_UNROLL
            for (index_t d_2 = 0; d_2 < 4; d_2++) {
              const float e = e_row[d_2 + i_51];
              const float v_49 = pl::quotient(e, sum, by);
              doubt = doubt || pl::doubtful(e, v_49, by);
              y_own[d_2] = v_49;
            }
            if (doubt) {
              PL_UNROLL
              for (index_t d_2_1 = 0; d_2_1 < 4; d_2_1++) {
                const float e_1 = e_row[d_2_1 + i_51];
                const float v_49_1 = e_1 / sum;
                y_own[d_2_1] = v_49_1;
              }
            }
            pl::store_many<4>(&y[i_56], &y_own[0]);
          }
        }
      }
    } else {
      for (index_t place = v_22; place < v_50; place++) {
        float max_1 = -pl::inf();
        const index_t v_51 = K * place;
        for (index_t k = pl::thread(); k < v; k += pl::threads()) {
          max_1 = pl::max(max_1, n[k + v_51]);
        }
        max_1 = pl::block_max(max_1);
        double sum_1 = 0.0;
        for (index_t round = 0; round < v; round += 8192) {
          float part = 0.0f;
          for (index_t k_1 = round + pl::thread(), k_1_end = pl::min(round + 8192, v); k_1 < k_1_end;
              k_1 += pl::threads()) {
            const float v_53 = n[k_1 + v_51] - max_1;
            part += pl::exp(v_53);
          }
          sum_1 += double(part);
        }
        sum_1 = pl::block_sum(sum_1);
        const float v_55 = float(sum_1);
        for (index_t k_2 = pl::thread(); k_2 < v; k_2 += pl::threads()) {
          const index_t i_62 = k_2 + v_51;
          const float v_56 = n[i_62] - max_1;
          y[i_62] = pl::exp(v_56) / v_55;
        }
      }
    }
  }
}

// tests/cases/rows.plir:22: compute { %y[...] = min(max(%x[...], 0), 6) }
extern "C" __global__ void __launch_bounds__(256)
layer_norm_softmax_relu6_y_1(float* __restrict__ y_1, const float* __restrict__ n, const index_t D0, const index_t K) {
  const bool aligned = pl::aligned(y_1, 16);
  const index_t v_3 = pl::max(D0, 0) * pl::max(K, 0);
  const bool v_4 = v_3 < 131072;
  const index_t v_6 = v_4 ? v_3 : pl::quot(v_3 + 3, 4);
  const bool v_8 = aligned && pl::aligned(n, 16) && !v_4;
  const index_t v_12 = v_4 ? 1 : 4;
  for (index_t d0_d1 = pl::grid_thread(); d0_d1 < v_6; d0_d1 += pl::grid_threads()) {
    const index_t i_1 = 4 * d0_d1;
    if (v_8 && i_1 + 4 <= v_3) {
      float n_own[4];
      float y_1_own[4];
      pl::load_many<4>(&n_own[0], &n[i_1]);
      PL_UNROLL
      for (index_t d = 0; d < 4; d++) {
        const float n_2 = n_own[d];
        y_1_own[d] = pl::min(pl::max(n_2, 0.0f), 6.0f);
      }
      pl::store_many<4>(&y_1[i_1], &y_1_own[0]);
    } else {
      for (index_t m = 0; m < v_12; m++) {
        const index_t v_14 = v_8 ? i_1 + m : d0_d1 + m * v_6;
        if (v_14 < v_3) {
          y_1[v_14] = pl::min(pl::max(n[v_14], 0.0f), 6.0f);
        }
      }
    }
  }
}
