#include "pipelink.cuh"
namespace pl = pipelink;
using namespace pl::types;

// tests/cases/edge_gamma.plir:18: compute  { %y[...] = clamp(%x[...], 0, 1) ** (1 / gamma) }
extern "C" __global__ void __launch_bounds__(256)
sobel_3x3_gamma_correct_y(const float* __restrict__ x, float* __restrict__ y, const index_t N, const index_t H,
    const index_t W) {
  const index_t i_2 = H - 1;
  const index_t i_3 = W - 1;
  const index_t i_5 = 3 * W;
  const index_t stride = H * i_5;
  const index_t stride_1 = H * W;
  for (index_t d0_d1_d2_d3 = pl::grid_thread(), d0_d1_d2_d3_end = pl::max(N, 0) * pl::max(H, 0) * pl::max(W, 0);
      d0_d1_d2_d3 < d0_d1_d2_d3_end; d0_d1_d2_d3 += pl::grid_threads()) {
    const index_t d2 = pl::rest(d0_d1_d2_d3, W);
    const index_t v_5 = pl::quot(d0_d1_d2_d3, W);
    const index_t d1 = pl::rest(v_5, H);
    const index_t v_6 = pl::quot(v_5, H);
    const index_t i_4 = 3 * pl::min(pl::max(d2 + 1, 0), i_3);
    const index_t v_11 = i_5 * pl::min(pl::max(d1 - 1, 0), i_2);
    const index_t v_12 = stride * v_6;
    const index_t i_7 = i_4 + v_11 + v_12;
    const float x_2 = x[i_7];
    const index_t v_13 = d1 * i_5;
    const index_t i_9 = i_4 + v_12;
    const index_t i_10 = i_9 + v_13;
    const index_t v_18 = i_5 * pl::min(pl::max(d1 + 1, 0), i_2);
    const index_t i_13 = i_9 + v_18;
    const float x_2_2 = x[i_13];
    const index_t i_15 = 3 * pl::min(pl::max(d2 - 1, 0), i_3);
    const index_t i_18 = i_15 + (v_11 + v_12);
    const float x_3 = x[i_18];
    const index_t i_21 = i_15 + (v_12 + v_13);
    const index_t i_24 = i_15 + (v_12 + v_18);
    const float x_5 = x[i_24];
    const float v_25 = 2.0f * x[i_10] + x_2 + x_2_2 - (2.0f * x[i_21] + x_3 + x_5);
    const index_t i_25 = 3 * d2;
    const index_t i_28 = i_25 + v_12 + v_18;
    const index_t i_30 = i_25 + v_11 + v_12;
    const float v_33 = 2.0f * x[i_28] + x_5 + x_2_2 - (2.0f * x[i_30] + x_3 + x_2);
    const float x_8 = x[i_7 + 1];
    const float x_10 = x[i_13 + 1];
    const float x_11 = x[i_18 + 1];
    const float x_13 = x[i_24 + 1];
    const float v_43 = 2.0f * x[i_10 + 1] + x_8 + x_10 - (2.0f * x[i_21 + 1] + x_11 + x_13);
    const float v_51 = 2.0f * x[i_28 + 1] + x_13 + x_10 - (2.0f * x[i_30 + 1] + x_11 + x_8);
    const float x_16 = x[i_7 + 2];
    const float x_18 = x[i_13 + 2];
    const float x_19 = x[i_18 + 2];
    const float x_21 = x[i_24 + 2];
    const float v_62 = 2.0f * x[i_10 + 2] + x_16 + x_18 - (2.0f * x[i_21 + 2] + x_19 + x_21);
    const float v_70 = 2.0f * x[i_28 + 2] + x_21 + x_18 - (2.0f * x[i_30 + 2] + x_19 + x_16);
    y[d2 + W * d1 + stride_1 * v_6]
        = pl::pow(pl::min(pl::max((pl::sqrt(v_25 * v_25 + v_33 * v_33) + pl::sqrt(v_43 * v_43 + v_51 * v_51)
        + pl::sqrt(v_62 * v_62 + v_70 * v_70)) / 3.0f, 0.0f), 1.0f), 0.45454544f);
  }
}
