#include "pipelink.cuh"
namespace pl = pipelink;
using namespace pl::types;

// tests/cases/rows.plir:16: %y[..., k] = (%x[..., k] - %mu[...]) * rsqrt(%var[...] + eps) * %g[k] + %b[k]
extern "C" __global__ void __launch_bounds__(256)
layer_norm_1_y(const float* __restrict__ x, const float* __restrict__ g, const float* __restrict__ b,
    float* __restrict__ y, const index_t D0, const index_t K) {
  const index_t v_3 = pl::max(K, 0);
  const double v_7 = double(v_3);
  for (index_t d0 = pl::block(), d0_end = K > 0 ? pl::max(D0, 0) : 0; d0 < d0_end; d0 += pl::blocks()) {
    double sum = 0.0;
    const index_t v_5 = K * d0;
    for (index_t round = 0; round < v_3; round += 8192) {
      float part = 0.0f;
      for (index_t k = round + pl::thread(), k_end = pl::min(round + 8192, v_3); k < k_end; k += pl::threads()) {
        part += x[k + v_5];
      }
      sum += double(part);
    }
    sum = pl::block_sum(sum);
    const double v_8 = sum / v_7;
    const float v_9 = float(v_8);
    double sum_1 = 0.0;
    for (index_t round_1 = 0; round_1 < v_3; round_1 += 8192) {
      float part_1 = 0.0f;
      for (index_t k_1 = round_1 + pl::thread(), k_1_end = pl::min(round_1 + 8192, v_3); k_1 < k_1_end;
          k_1 += pl::threads()) {
        const float v_11 = x[k_1 + v_5] - v_9;
        part_1 += v_11 * v_11;
      }
      sum_1 += double(part_1);
    }
    sum_1 = pl::block_sum(sum_1);
    const double v_13 = sum_1 / v_7;
    const float v_17 = pl::rsqrt(1e-5f + float(v_13));
    for (index_t k_2 = pl::thread(); k_2 < v_3; k_2 += pl::threads()) {
      const index_t i_4 = k_2 + v_5;
      y[i_4] = b[k_2] + g[k_2] * ((x[i_4] - v_9) * v_17);
    }
  }
}

// tests/cases/rows.plir:7: %y[..., k] = %e[..., k] / %s[...]
extern "C" __global__ void __launch_bounds__(256)
softmax_1_y(const float* __restrict__ x, float* __restrict__ y, const index_t D0, const index_t K) {
  const index_t v_3 = pl::max(K, 0);
  for (index_t d0 = pl::block(), d0_end = K > 0 ? pl::max(D0, 0) : 0; d0 < d0_end; d0 += pl::blocks()) {
    float max = -pl::inf();
    const index_t v_4 = K * d0;
    for (index_t k = pl::thread(); k < v_3; k += pl::threads()) {
      max = pl::max(max, x[k + v_4]);
    }
    max = pl::block_max(max);
    double sum = 0.0;
    for (index_t round = 0; round < v_3; round += 8192) {
      float part = 0.0f;
      for (index_t k_1 = round + pl::thread(), k_1_end = pl::min(round + 8192, v_3); k_1 < k_1_end;
          k_1 += pl::threads()) {
        const float v_6 = x[k_1 + v_4] - max;
        part += pl::exp(v_6);
      }
      sum += double(part);
    }
    sum = pl::block_sum(sum);
    const float v_8 = float(sum);
    for (index_t k_2 = pl::thread(); k_2 < v_3; k_2 += pl::threads()) {
      const index_t i_3 = k_2 + v_4;
      const float v_9 = x[i_3] - max;
      y[i_3] = pl::exp(v_9) / v_8;
    }
  }
}

// tests/cases/rows.plir:22: compute { %y[...] = min(max(%x[...], 0), 6) }
extern "C" __global__ void __launch_bounds__(256)
relu6_1_y(const float* __restrict__ x, float* __restrict__ y, const index_t D0, const index_t D1) {
  for (index_t d0_d1 = pl::grid_thread(), d0_d1_end = pl::max(D0, 0) * pl::max(D1, 0); d0_d1 < d0_d1_end;
      d0_d1 += pl::grid_threads()) {
    y[d0_d1] = pl::min(pl::max(x[d0_d1], 0.0f), 6.0f);
  }
}
