#include "pipelink.cuh"
namespace pl = pipelink;
using namespace pl::types;

// tests/cases/rows.plir:16: %y[..., k] = (%x[..., k] - %mu[...]) * rsqrt(%var[...] + eps) * %g[k] + %b[k]
extern "C" __global__ void __launch_bounds__(128, 8)
layer_norm_softmax_relu6_n_short(const float* __restrict__ x, const float* __restrict__ g, const float* __restrict__ b,
    float* __restrict__ n, const index_t D0, const index_t K) {
  alignas(16) __shared__ float x_lot[4096];
  const index_t v = pl::max(K, 0);
  const index_t v_10 = v <= 8 ? 1 : v <= 16 ? 2 : v <= 32 ? 4 : v <= 64 ? 8 : v <= 128 ? 16 : 32;
  const index_t rows = pl::quot(128, v_10);
  const bool v_15 = pl::rest(v, 4) == 0;
  const bool aligned = pl::aligned(x, 16);
  const bool aligned_3 = pl::aligned(n, 16);
  const bool v_21 = aligned_3
      && (pl::aligned(g, 16)
      && (pl::aligned(b, 16) && (aligned && (v_15 && (pl::rest(pl::max(v, 0), 4) == 0 && v_15)))));
  const index_t v_24 = K > 0 ? pl::max(D0, 0) : 0;
  const index_t i = 4 * rows;
  const index_t v_25 = v_21 ? rows : i;
  const index_t i_47 = rows + v_24;
  for (index_t lot = pl::block(), lot_end = K <= 256 ? pl::quot(v_24 + v_25 - 1, v_25) : 0; lot < lot_end;
      lot += pl::blocks()) {
    const index_t v_27 = lot * rows;
    const index_t v_33 = K * v_27;
    const index_t v_52 = i * lot;
    const index_t i_38 = -v_52;
    const index_t v_54 = v * pl::min(i, i_38 + v_24);
    const index_t v_55 = v * v_52;
    const index_t i_49 = i_38 + i_47 - 1;
    const index_t i_50 = 4 * lot;
    if (v_21) {
      const index_t thread = pl::thread();
      const index_t place = pl::quot(thread, v_10);
      const index_t v_29 = place + v_27 < v_24 ? v : 0;
      const index_t i_6 = 4 * pl::rest(thread, v_10);
      const index_t i_12 = i_6 + v_33 + K * place;
      float x_row[8] = {};
      {
        const index_t t = pl::thread();
        PL_UNROLL
        for (index_t r = 0; r < 2; r++) {
          const index_t i_7 = 4 * (r * v_10);
          const index_t i_9 = 4 * r;
          const index_t i_13 = i_12 + i_7;
          if (i_6 + i_7 < v_29) {
            pl::load_many<4>(&x_row[i_9], &x[i_13]);
          }
        }
      }
      float sum = 0.0f;
      {
        const index_t t_1 = pl::thread();
        PL_UNROLL
        for (index_t r_1 = 0; r_1 < 2; r_1++) {
          const index_t i_17 = 4 * r_1;
          if (4 * (r_1 * v_10) + i_6 < v_29) {
            PL_UNROLL
            for (index_t d = 0; d < 4; d++) {
              const float x_2 = x_row[d + i_17];
              sum += x_2;
            }
          }
        }
      }
      sum = pl::lanes_sum(sum, v_10);
      const float v_37 = float(v);
      const float v_38 = sum / v_37;
      float sum_1 = 0.0f;
      {
        const index_t t_2 = pl::thread();
        PL_UNROLL
        for (index_t r_2 = 0; r_2 < 2; r_2++) {
          const index_t i_25 = 4 * r_2;
          if (4 * (r_2 * v_10) + i_6 < v_29) {
            PL_UNROLL
            for (index_t d_1 = 0; d_1 < 4; d_1++) {
              const float x_1 = x_row[d_1 + i_25];
              const float v_41 = x_1 - v_38;
              sum_1 += v_41 * v_41;
            }
          }
        }
      }
      sum_1 = pl::lanes_sum(sum_1, v_10);
      const float v_43 = sum_1 / v_37;
      const float v_48 = pl::rsqrt(1e-5f + v_43);
      {
        const index_t t_3 = pl::thread();
        PL_UNROLL
        for (index_t r_3 = 0; r_3 < 2; r_3++) {
          const index_t i_31 = 4 * (r_3 * v_10);
          const index_t i_32 = i_31 + i_6;
          const index_t i_33 = 4 * r_3;
          const index_t i_36 = i_12 + i_31;
          if (i_32 < v_29) {
            float b_row[4];
            float g_row[4];
            float n_own_1[4];
            pl::load_many<4>(&b_row[0], &b[i_32]);
            pl::load_many<4>(&g_row[0], &g[i_32]);
            PL_UNROLL
            for (index_t d_2 = 0; d_2 < 4; d_2++) {
              const float x_2_2 = x_row[d_2 + i_33];
              const float b_2 = b_row[d_2];
              const float g_2 = g_row[d_2];
              n_own_1[d_2] = b_2 + g_2 * ((x_2_2 - v_38) * v_48);
            }
            pl::store_many<4>(&n[i_36], &n_own_1[0]);
          }
        }
      }
    } else {
      __syncthreads();  // what the last turn left in shared memory has been read
      const index_t i_41 = v_54 - pl::rest(v_54, 4);
      const index_t v_57 = aligned ? i_41 : 0;
      PL_UNROLL_SOME
      for (index_t v_59 = pl::thread(), v_59_end = pl::quot(v_57, 4); v_59 < v_59_end; v_59 += pl::threads()) {
        const index_t i_42 = 4 * v_59;
        pl::copy_many<4>(&x_lot[i_42], &x[i_42 + v_55]);
      }
      for (index_t i_44 = v_57 + pl::thread(); i_44 < v_54; i_44 += pl::threads()) {
        x_lot[i_44] = x[i_44 + v_55];
      }
      __syncthreads();
      for (index_t time = 0, time_end = pl::min(pl::quot(i_49, rows), 4); time < time_end; time++) {
        const index_t thread_1 = pl::thread();
        const index_t lane_1 = pl::rest(thread_1, v_10);
        const index_t place_1 = pl::quot(thread_1, v_10);
        const index_t v_64 = place_1 + (i_50 + time) * rows < v_24 ? v : 0;
        const index_t i_59 = lane_1 + (place_1 + rows * time) * v;
        float x_row_2[8] = {};
        {
          const index_t t_4 = pl::thread();
          PL_UNROLL
          for (index_t r_4 = 0; r_4 < 8; r_4++) {
            const index_t v_66 = r_4 * v_10;
            const index_t i_60 = i_59 + v_66;
            if (lane_1 + v_66 < v_64) {
              const float x_3 = x_lot[i_60];
              x_row_2[r_4] = x_3;
            }
          }
        }
        float sum_2 = 0.0f;
        {
          const index_t t_5 = pl::thread();
          PL_UNROLL
          for (index_t r_5 = 0; r_5 < 8; r_5++) {
            if (lane_1 + r_5 * v_10 < v_64) {
              const float x_4 = x_row_2[r_5];
              sum_2 += x_4;
            }
          }
        }
        sum_2 = pl::lanes_sum(sum_2, v_10);
        const float v_73 = float(v);
        const float v_74 = sum_2 / v_73;
        float sum_3 = 0.0f;
        {
          const index_t t_6 = pl::thread();
          PL_UNROLL
          for (index_t r_6 = 0; r_6 < 8; r_6++) {
            if (lane_1 + r_6 * v_10 < v_64) {
              const float x_5 = x_row_2[r_6];
              const float v_77 = x_5 - v_74;
              sum_3 += v_77 * v_77;
            }
          }
        }
        sum_3 = pl::lanes_sum(sum_3, v_10);
        const float v_79 = sum_3 / v_73;
        const float v_84 = pl::rsqrt(1e-5f + v_79);
        {
          const index_t t_7 = pl::thread();
          PL_UNROLL
          for (index_t r_7 = 0; r_7 < 8; r_7++) {
            const index_t v_80 = r_7 * v_10;
            const index_t i_65 = lane_1 + v_80;
            const index_t i_67 = i_59 + v_80;
            if (i_65 < v_64) {
              const float x_6 = x_row_2[r_7];
              x_lot[i_67] = b[i_65] + g[i_65] * ((x_6 - v_74) * v_84);
            }
          }
        }
      }
      __syncthreads();
      const index_t v_88 = aligned_3 ? i_41 : 0;
      PL_UNROLL_SOME
      for (index_t v_90 = pl::thread(), v_90_end = pl::quot(v_88, 4); v_90 < v_90_end; v_90 += pl::threads()) {
        const index_t i_68 = 4 * v_90;
        pl::copy_many<4>(&n[i_68 + v_55], &x_lot[i_68]);
      }
      for (index_t i_70 = v_88 + pl::thread(); i_70 < v_54; i_70 += pl::threads()) {
        n[i_70 + v_55] = x_lot[i_70];
      }
    }
  }
}

// layer_norm.softmax.relu6.n.long.begin
extern "C" __global__ void __launch_bounds__(256)
layer_norm_softmax_relu6_n_long_begin(int* __restrict__ n_counters, const index_t D0, const index_t K) {
  for (index_t i_1 = pl::grid_thread(), i_1_end = K > 16384 ? pl::max(D0, 0) + 1 : 0; i_1 < i_1_end;
      i_1 += pl::grid_threads()) {
    n_counters[i_1] = 0;
  }
}

// tests/cases/rows.plir:16: %y[..., k] = (%x[..., k] - %mu[...]) * rsqrt(%var[...] + eps) * %g[k] + %b[k]
extern "C" __global__ void __launch_bounds__(512, PL_FIT(512, 3))
layer_norm_softmax_relu6_n_long(const float* __restrict__ x, const float* __restrict__ g, const float* __restrict__ b,
    float* __restrict__ n, int* __restrict__ n_counters, double* __restrict__ n_parts_0,
    double* __restrict__ n_parts_1, const index_t D0, const index_t K) {
  const index_t v = pl::max(K, 0);
  const index_t v_1 = pl::max(D0, 0);
  const index_t v_2 = v * v_1;
  const index_t v_4 = v_2 < 2097152 ? 0 : 4096;
  const index_t v_6 = v_2 < 8388608 ? 0 : 8192;
  const index_t i_2 = v_4 + v_6 + 4096;
  const index_t parts = pl::quot(v + v_4 + v_6 + 4095, i_2);
  const index_t i_14 = parts - 1;
  const bool aligned = pl::aligned(x, 16);
  const bool aligned_1 = pl::aligned(n, 16);
  for (index_t turn = index_t(pl::ticket(n_counters)), turn_end = K > 16384 ? (v_1 > 0 ? (2 * v_1 + 2) * parts : 0)
      : 0; turn < turn_end; turn = index_t(pl::ticket(n_counters))) {
    const index_t slot = pl::quot(turn, parts);
    const index_t part = pl::rest(turn, parts);
    const index_t step = pl::quot(slot, 2);
    const index_t round = pl::rest(slot, 2);
    const index_t i_11 = step - round;
    const bool v_13 = round == 0;
    const index_t v_14 = i_11 * v;
    const index_t v_15 = i_2 * part;
    const bool v_17 = i_14 == part;
    const index_t v_18 = (part + 1) * i_2;
    const index_t v_20 = i_11 * parts;
    const index_t i_17 = part + v_20;
    const index_t i_27 = K * step - K * round;
    const index_t i_57 = i_11 + 1;
    const bool v_41 = round == 1;
    if (i_11 >= 0 && i_11 < v_1) {
      if (v_13) {
        const index_t off = pl::rest(v_14, 4);
        const index_t i_12 = -off;
        const index_t v_16 = pl::max(i_12 + v_15, 0);
        const index_t v_19 = v_17 ? v : i_12 + v_18;
        float mean = 0.0f;
        const index_t v_24 = aligned ? pl::min(v_16 + pl::rest(4 - pl::rest(off + v_16, 4), 4), v_19) : v_19;
        const index_t v_25 = pl::quot(v_19 - v_24, 4);
        const index_t i_28 = i_27 + v_24;
        PL_UNROLL_SOME
        for (index_t v_26 = pl::thread(); v_26 < v_25; v_26 += pl::threads()) {
          float x_own_2[4];
          pl::load_many<4>(&x_own_2[0], &x[4 * v_26 + i_28]);
          PL_UNROLL
          for (index_t d = 0; d < 4; d++) {
            const float x_2 = x_own_2[d];
            mean += x_2;
          }
        }
        const index_t i_34 = -v_16;
        const index_t i_35 = i_34 + v_24;
        const index_t i_38 = i_34 + v_19;
        const index_t i_39 = -4 * v_25 + i_38;
        const index_t i_44 = 4 * v_25 + v_16;
        for (index_t i_40 = pl::thread(); i_40 < i_39; i_40 += pl::threads()) {
          mean += x[i_27 + (i_40 < i_35 ? i_40 + v_16 : i_40 + i_44)];
        }
        double wide = 0.0;
        wide = double(mean);
        wide = pl::block_sum(wide);
        if (pl::leader()) {
          n_parts_0[i_17] = wide;
        }
        const double v_32 = wide / double(i_38);
        const float v_33 = float(v_32);
        float mean_1 = 0.0f;
        PL_UNROLL_SOME
        for (index_t v_34 = pl::thread(); v_34 < v_25; v_34 += pl::threads()) {
          float x_own_3[4];
          pl::load_many<4>(&x_own_3[0], &x[i_28 + 4 * v_34]);
          PL_UNROLL
          for (index_t d_1 = 0; d_1 < 4; d_1++) {
            const float x_2_2 = x_own_3[d_1];
            const float v_35 = x_2_2 - v_33;
            mean_1 += v_35 * v_35;
          }
        }
        for (index_t i_52 = pl::thread(); i_52 < i_39; i_52 += pl::threads()) {
          const float v_39 = x[i_27 + (i_52 < i_35 ? i_52 + v_16 : i_44 + i_52)] - v_33;
          mean_1 += v_39 * v_39;
        }
        double wide_1 = 0.0;
        wide_1 = double(mean_1);
        wide_1 = pl::block_sum(wide_1);
        if (pl::leader()) {
          n_parts_1[i_17] = wide_1;
        }
        pl::signal(&n_counters[i_57]);
      }
      if (v_41) {
        const index_t off_1 = pl::rest(v_14, 4);
        const index_t i_58 = -off_1;
        const index_t v_42 = pl::max(i_58 + v_15, 0);
        const index_t v_43 = v_17 ? v : i_58 + v_18;
        pl::await_count(&n_counters[i_57], parts);
        double mean_2 = 0.0;
        for (index_t p = pl::thread(); p < parts; p += pl::threads()) {
          const double part_1 = n_parts_0[p + v_20];
          mean_2 += part_1;
        }
        mean_2 = pl::block_sum(mean_2);
        const double v_45 = double(v);
        const double v_46 = mean_2 / v_45;
        const float v_47 = float(v_46);
        double mean_3 = 0.0;
        const double v_57 = double(v_47);
        for (index_t p_1 = pl::thread(); p_1 < parts; p_1 += pl::threads()) {
          const index_t i_62 = p_1 + v_20;
          const double part_2 = n_parts_1[i_62];
          const double part_3 = n_parts_0[i_62];
          const double v_53 = double((i_14 == p_1 ? v : i_58 + i_2 * (p_1 + 1)) - pl::max(i_58 + i_2 * p_1, 0));
          const double v_56 = double(float(part_3 / v_53));
          const double v_58 = v_56 - v_57;
          mean_3 += part_2 + v_58 * (2.0 * (part_3 - v_53 * v_56) + v_53 * v_58);
        }
        mean_3 = pl::block_sum(mean_3);
        const double v_66 = mean_3 / v_45;
        const index_t v_72 = aligned && aligned_1 ? pl::min(v_42 + pl::rest(4 - pl::rest(off_1 + v_42, 4), 4), v_43)
            : v_43;
        const index_t v_73 = pl::quot(v_43 - v_72, 4);
        const index_t i_76 = i_27 + v_72;
        const float v_77 = pl::rsqrt(1e-5f + float(v_66));
        PL_UNROLL_SOME
        for (index_t v_74 = pl::thread(); v_74 < v_73; v_74 += pl::threads()) {
          const index_t i_74 = 4 * v_74;
          const index_t i_75 = i_74 + v_72;
          float x_own_4[4];
          float n_own[4];
          const index_t i_77 = i_74 + i_76;
          pl::load_many<4>(&x_own_4[0], &x[i_77]);
          PL_UNROLL
          for (index_t d_2 = 0; d_2 < 4; d_2++) {
            const index_t i_78 = d_2 + i_75;
            const float x_4 = x_own_4[d_2];
            n_own[d_2] = b[i_78] + g[i_78] * ((x_4 - v_47) * v_77);
          }
          pl::store_many<4>(&n[i_77], &n_own[0]);
        }
        const index_t i_82 = -v_42;
        const index_t i_83 = i_82 + v_72;
        const index_t i_92 = 4 * v_73 + v_42;
        for (index_t i_88 = pl::thread(), i_88_end = -4 * v_73 + (i_82 + v_43); i_88 < i_88_end;
            i_88 += pl::threads()) {
          const index_t v_82 = i_88 < i_83 ? i_88 + v_42 : i_88 + i_92;
          const index_t i_94 = i_27 + v_82;
          n[i_94] = b[v_82] + g[v_82] * (v_77 * (x[i_94] - v_47));
        }
      }
    }
  }
}

// tests/cases/rows.plir:16: %y[..., k] = (%x[..., k] - %mu[...]) * rsqrt(%var[...] + eps) * %g[k] + %b[k]
extern "C" __global__ void __launch_bounds__(1024)
layer_norm_softmax_relu6_n(const float* __restrict__ x, const float* __restrict__ g, const float* __restrict__ b,
    float* __restrict__ n, const index_t D0, const index_t K) {
  const index_t threads = pl::threads();
  const index_t v = pl::max(K, 0);
  const bool v_7 = pl::rest(v, 4) == 0;
  const bool aligned_3 = pl::aligned(n, 16);
  const bool v_13 = aligned_3
      && (pl::aligned(g, 16)
      && (pl::aligned(b, 16)
      && (pl::aligned(x, 16) && (v_7 && (v <= 16 * threads && pl::rest(pl::max(v, 0), 4) == 0 && v_7)))));
  for (index_t d0 = pl::block(), d0_end = K > 256 && K <= 16384 ? (K > 0 ? pl::max(D0, 0) : 0) : 0; d0 < d0_end;
      d0 += pl::blocks()) {
    const index_t v_20 = K * d0;
    if (v_13) {
      float x_row[16] = {};
      {
        const index_t t = pl::thread();
        const index_t v_17 = pl::quot(t, 32);
        const index_t v_18 = pl::rest(t, 32);
        const index_t i_12 = -512 * v_17 + v + -4 * v_18;
        const index_t i_14 = 512 * v_17 + v_20 + 4 * v_18;
        PL_UNROLL
        for (index_t r = 0; r < 4; r++) {
          const index_t i_1 = 4 * r;
          const index_t i_2 = 128 * r;
          const index_t i_15 = i_14 + i_2;
          if (i_2 < i_12) {
            pl::load_many<4>(&x_row[i_1], &x[i_15]);
          }
        }
      }
      float sum = 0.0f;
      {
        const index_t t_1 = pl::thread();
        const index_t i_27 = -512 * pl::quot(t_1, 32) + v + -4 * pl::rest(t_1, 32);
        PL_UNROLL
        for (index_t r_1 = 0; r_1 < 4; r_1++) {
          const index_t i_16 = 4 * r_1;
          if (128 * r_1 < i_27) {
            PL_UNROLL
            for (index_t d = 0; d < 4; d++) {
              const float x_2 = x_row[d + i_16];
              sum += x_2;
            }
          }
        }
      }
      sum = pl::block_sum(sum);
      const float v_25 = float(v);
      const float v_26 = sum / v_25;
      float sum_1 = 0.0f;
      {
        const index_t t_2 = pl::thread();
        const index_t i_45 = -512 * pl::quot(t_2, 32) + v + -4 * pl::rest(t_2, 32);
        PL_UNROLL
        for (index_t r_2 = 0; r_2 < 4; r_2++) {
          const index_t i_34 = 4 * r_2;
          if (128 * r_2 < i_45) {
            PL_UNROLL
            for (index_t d_1 = 0; d_1 < 4; d_1++) {
              const float x_1 = x_row[d_1 + i_34];
              const float v_30 = x_1 - v_26;
              sum_1 += v_30 * v_30;
            }
          }
        }
      }
      sum_1 = pl::block_sum(sum_1);
      const float v_32 = sum_1 / v_25;
      const float v_38 = pl::rsqrt(1e-5f + v_32);
      {
        const index_t t_3 = pl::thread();
        const index_t v_33 = pl::quot(t_3, 32);
        const index_t v_34 = pl::rest(t_3, 32);
        const index_t i_56 = 512 * v_33;
        const index_t i_57 = 4 * v_34;
        const index_t i_58 = i_56 + i_57;
        const index_t i_63 = -512 * v_33 + v + -4 * v_34;
        const index_t i_67 = i_57 + (i_56 + v_20);
        PL_UNROLL
        for (index_t r_3 = 0; r_3 < 4; r_3++) {
          const index_t i_52 = 4 * r_3;
          const index_t i_53 = 128 * r_3;
          const index_t i_59 = i_53 + i_58;
          const index_t i_68 = i_53 + i_67;
          if (i_53 < i_63) {
            float b_row[4];
            float g_row[4];
            float n_own[4];
            pl::load_many<4>(&b_row[0], &b[i_59]);
            pl::load_many<4>(&g_row[0], &g[i_59]);
            PL_UNROLL
            for (index_t d_2 = 0; d_2 < 4; d_2++) {
              const float x_2_2 = x_row[d_2 + i_52];
              const float b_2 = b_row[d_2];
              const float g_2 = g_row[d_2];
              n_own[d_2] = b_2 + g_2 * ((x_2_2 - v_26) * v_38);
            }
            pl::store_many<4>(&n[i_68], &n_own[0]);
          }
        }
      }
    } else {
      float x_row_2[16] = {};
      {
        const index_t t_4 = pl::thread();
        const index_t v_42 = pl::quot(t_4, 32);
        const index_t v_43 = pl::rest(t_4, 32);
        const index_t i_77 = -512 * v_42 + v - v_43;
        const index_t i_79 = 512 * v_42 + v_20 + v_43;
        PL_UNROLL
        for (index_t r_4 = 0; r_4 < 16; r_4++) {
          const index_t i_70 = 32 * r_4;
          const index_t i_80 = i_70 + i_79;
          if (i_70 < i_77) {
            x_row_2[r_4] = x[i_80];
          }
        }
      }
      float sum_2 = 0.0f;
      {
        const index_t t_5 = pl::thread();
        const index_t i_88 = -512 * pl::quot(t_5, 32) + v - pl::rest(t_5, 32);
        PL_UNROLL
        for (index_t r_5 = 0; r_5 < 16; r_5++) {
          if (32 * r_5 < i_88) {
            const float x_4 = x_row_2[r_5];
            sum_2 += x_4;
          }
        }
      }
      sum_2 = pl::block_sum(sum_2);
      const float v_48 = float(v);
      const float v_49 = sum_2 / v_48;
      float sum_3 = 0.0f;
      {
        const index_t t_6 = pl::thread();
        const index_t i_99 = -512 * pl::quot(t_6, 32) + v - pl::rest(t_6, 32);
        PL_UNROLL
        for (index_t r_6 = 0; r_6 < 16; r_6++) {
          if (32 * r_6 < i_99) {
            const float x_5 = x_row_2[r_6];
            const float v_53 = x_5 - v_49;
            sum_3 += v_53 * v_53;
          }
        }
      }
      sum_3 = pl::block_sum(sum_3);
      const float v_55 = sum_3 / v_48;
      {
        const index_t t_7 = pl::thread();
        if (480 < -512 * pl::quot(t_7, 32) + v - pl::rest(t_7, 32)) {
          float b_row_2[8];
          float g_row_2[8];
          const index_t i_104 = 512 * pl::quot(t_7, 32);
          const index_t v_57 = pl::rest(t_7, 32);
          const index_t i_105 = i_104 + v_57;
          PL_UNROLL
          for (index_t r_7 = 0; r_7 < 8; r_7++) {
            const index_t i_106 = 32 * r_7 + i_105;
            b_row_2[r_7] = b[i_106];
            g_row_2[r_7] = g[i_106];
          }
          const index_t i_114 = i_104 + v_20 + v_57;
          const float v_62 = pl::rsqrt(1e-5f + v_55);
          PL_UNROLL
          for (index_t r_8 = 0; r_8 < 8; r_8++) {
            float n_own_2[1];
            const float x_6 = x_row_2[r_8];
            const float b_2_2 = b_row_2[r_8];
            const float g_2_2 = g_row_2[r_8];
            n_own_2[0] = b_2_2 + g_2_2 * ((x_6 - v_49) * v_62);
            const float n_2 = n_own_2[0];
            n[32 * r_8 + i_114] = n_2;
          }
          float b_row_3[8];
          float g_row_3[8];
          PL_UNROLL
          for (index_t r_9 = 0; r_9 < 8; r_9++) {
            const index_t i_120 = i_105 + 32 * r_9 + 256;
            b_row_3[r_9] = b[i_120];
            g_row_3[r_9] = g[i_120];
          }
          PL_UNROLL
          for (index_t r_10 = 0; r_10 < 8; r_10++) {
            float n_own_3[1];
            const float x_7 = x_row_2[r_10 + 8];
            const float b_4 = b_row_3[r_10];
            const float g_4 = g_row_3[r_10];
            n_own_3[0] = b_4 + g_4 * (v_62 * (x_7 - v_49));
            const float n_1 = n_own_3[0];
            n[i_114 + 32 * r_10 + 256] = n_1;
          }
        } else {
          float b_row_4[4];
          float g_row_4[4];
          const index_t v_72 = pl::quot(t_7, 32);
          const index_t i_129 = 512 * v_72;
          const index_t v_73 = pl::rest(t_7, 32);
          const index_t i_130 = i_129 + v_73;
          const index_t i_135 = -512 * v_72 + v - v_73;
          PL_UNROLL
          for (index_t r_11 = 0; r_11 < 4; r_11++) {
            const index_t i_128 = 32 * r_11;
            const index_t i_131 = i_128 + i_130;
            if (i_128 < i_135) {
              b_row_4[r_11] = b[i_131];
              g_row_4[r_11] = g[i_131];
            } else {
              b_row_4[r_11] = 0.0f;
              g_row_4[r_11] = 0.0f;
            }
          }
          const index_t i_139 = i_129 + v_20 + v_73;
          const float v_78 = pl::rsqrt(1e-5f + v_55);
          PL_UNROLL
          for (index_t r_12 = 0; r_12 < 4; r_12++) {
            const index_t i_136 = 32 * r_12;
            const index_t i_140 = i_136 + i_139;
            if (i_136 < i_135) {
              float n_own_4[1];
              const float x_8 = x_row_2[r_12];
              const float b_6 = b_row_4[r_12];
              const float g_6 = g_row_4[r_12];
              n_own_4[0] = b_6 + g_6 * ((x_8 - v_49) * v_78);
              const float n_2_2 = n_own_4[0];
              n[i_140] = n_2_2;
            }
          }
          float b_row_5[4];
          float g_row_5[4];
          PL_UNROLL
          for (index_t r_13 = 0; r_13 < 4; r_13++) {
            const index_t i_142 = 32 * r_13;
            const index_t i_145 = i_130 + i_142 + 128;
            if (i_142 + 128 < i_135) {
              b_row_5[r_13] = b[i_145];
              g_row_5[r_13] = g[i_145];
            } else {
              b_row_5[r_13] = 0.0f;
              g_row_5[r_13] = 0.0f;
            }
          }
          PL_UNROLL
          for (index_t r_14 = 0; r_14 < 4; r_14++) {
            const index_t i_146 = r_14 + 4;
            const index_t i_147 = 32 * r_14;
            const index_t i_152 = i_139 + i_147 + 128;
            if (i_147 + 128 < i_135) {
              float n_own_5[1];
              const float x_9 = x_row_2[i_146];
              const float b_8 = b_row_5[r_14];
              const float g_8 = g_row_5[r_14];
              n_own_5[0] = b_8 + g_8 * (v_78 * (x_9 - v_49));
              const float n_3 = n_own_5[0];
              n[i_152] = n_3;
            }
          }
          float b_row_6[4];
          float g_row_6[4];
          PL_UNROLL
          for (index_t r_15 = 0; r_15 < 4; r_15++) {
            const index_t i_154 = 32 * r_15;
            const index_t i_157 = i_130 + i_154 + 256;
            if (i_154 + 256 < i_135) {
              b_row_6[r_15] = b[i_157];
              g_row_6[r_15] = g[i_157];
            } else {
              b_row_6[r_15] = 0.0f;
              g_row_6[r_15] = 0.0f;
            }
          }
          PL_UNROLL
          for (index_t r_16 = 0; r_16 < 4; r_16++) {
            const index_t i_158 = r_16 + 8;
            const index_t i_159 = 32 * r_16;
            const index_t i_164 = i_139 + i_159 + 256;
            if (i_159 + 256 < i_135) {
              float n_own_6[1];
              const float x_10 = x_row_2[i_158];
              const float b_10 = b_row_6[r_16];
              const float g_10 = g_row_6[r_16];
              n_own_6[0] = b_10 + g_10 * (v_78 * (x_10 - v_49));
              const float n_4 = n_own_6[0];
              n[i_164] = n_4;
            }
          }
          float b_row_7[4];
          float g_row_7[4];
          PL_UNROLL
          for (index_t r_17 = 0; r_17 < 4; r_17++) {
            const index_t i_166 = 32 * r_17;
            const index_t i_169 = i_130 + i_166 + 384;
            if (i_166 + 384 < i_135) {
              b_row_7[r_17] = b[i_169];
              g_row_7[r_17] = g[i_169];
            } else {
              b_row_7[r_17] = 0.0f;
              g_row_7[r_17] = 0.0f;
            }
          }
          PL_UNROLL
          for (index_t r_18 = 0; r_18 < 4; r_18++) {
            const index_t i_170 = r_18 + 12;
            const index_t i_171 = 32 * r_18;
            const index_t i_176 = i_139 + i_171 + 384;
            if (i_171 + 384 < i_135) {
              float n_own_7[1];
              const float x_11 = x_row_2[i_170];
              const float b_12 = b_row_7[r_18];
              const float g_12 = g_row_7[r_18];
              n_own_7[0] = b_12 + g_12 * (v_78 * (x_11 - v_49));
              const float n_5 = n_own_7[0];
              n[i_176] = n_5;
            }
          }
        }
      }
    }
  }
}

// tests/cases/rows.plir:7: %y[..., k] = %e[..., k] / %s[...]
extern "C" __global__ void __launch_bounds__(128, 8)
layer_norm_softmax_relu6_y_short(float* __restrict__ y, const float* __restrict__ n, const index_t D0,
    const index_t K) {
  alignas(16) __shared__ float n_lot[4096];
  const index_t v = pl::max(K, 0);
  const index_t v_10 = v <= 8 ? 1 : v <= 16 ? 2 : v <= 32 ? 4 : v <= 64 ? 8 : v <= 128 ? 16 : 32;
  const index_t rows = pl::quot(128, v_10);
  const bool v_15 = pl::rest(v, 4) == 0;
  const bool aligned = pl::aligned(n, 16);
  const bool aligned_1 = pl::aligned(y, 16);
  const bool v_19 = aligned_1 && (aligned && (v_15 && (pl::rest(pl::max(v, 0), 4) == 0 && v_15)));
  const index_t v_22 = K > 0 ? pl::max(D0, 0) : 0;
  const index_t i = 4 * rows;
  const index_t v_23 = v_19 ? rows : i;
  const index_t i_47 = rows + v_22;
  for (index_t lot = pl::block(), lot_end = K <= 256 ? pl::quot(v_22 + v_23 - 1, v_23) : 0; lot < lot_end;
      lot += pl::blocks()) {
    const index_t v_25 = lot * rows;
    const index_t v_31 = K * v_25;
    const index_t v_41 = i * lot;
    const index_t i_38 = -v_41;
    const index_t v_43 = v * pl::min(i, i_38 + v_22);
    const index_t v_44 = v * v_41;
    const index_t i_49 = i_38 + i_47 - 1;
    const index_t i_50 = 4 * lot;
    if (v_19) {
      const index_t thread = pl::thread();
      const index_t place = pl::quot(thread, v_10);
      const index_t v_27 = place + v_25 < v_22 ? v : 0;
      const index_t i_6 = 4 * pl::rest(thread, v_10);
      const index_t i_12 = i_6 + v_31 + K * place;
      float e_row[8] = {};
      float n_row[8] = {};
      {
        const index_t t = pl::thread();
        PL_UNROLL
        for (index_t r = 0; r < 2; r++) {
          const index_t i_7 = 4 * (r * v_10);
          const index_t i_9 = 4 * r;
          const index_t i_13 = i_12 + i_7;
          if (i_6 + i_7 < v_27) {
            pl::load_many<4>(&n_row[i_9], &n[i_13]);
          }
        }
      }
      float max = -pl::inf();
      {
        const index_t t_1 = pl::thread();
        PL_UNROLL
        for (index_t r_1 = 0; r_1 < 2; r_1++) {
          const index_t i_17 = 4 * r_1;
          if (4 * (r_1 * v_10) + i_6 < v_27) {
            PL_UNROLL
            for (index_t d = 0; d < 4; d++) {
              const float n_2 = n_row[d + i_17];
              max = pl::max(max, n_2);
            }
          }
        }
      }
      max = pl::lanes_max(max, v_10);
      float sum = 0.0f;
      {
        const index_t t_2 = pl::thread();
        PL_UNROLL
        for (index_t r_2 = 0; r_2 < 2; r_2++) {
          const index_t i_25 = 4 * r_2;
          if (4 * (r_2 * v_10) + i_6 < v_27) {
            PL_UNROLL
            for (index_t d_1 = 0; d_1 < 4; d_1++) {
              const index_t i_27 = d_1 + i_25;
              const float n_1 = n_row[i_27];
              const float v_36 = n_1 - max;
              const float v_37 = pl::exp(v_36);
              sum += v_37;
              e_row[i_27] = v_37;
            }
          }
        }
      }
      sum = pl::lanes_sum(sum, v_10);
      const float by = pl::inverse(sum);
      {
        const index_t t_3 = pl::thread();
        PL_UNROLL
        for (index_t r_3 = 0; r_3 < 2; r_3++) {
          const index_t i_31 = 4 * (r_3 * v_10);
          const index_t i_33 = 4 * r_3;
          const index_t i_36 = i_12 + i_31;
          if (i_31 + i_6 < v_27) {
            float y_own_1[4];
            bool doubt = false;
            PL_UNROLL
            for (index_t d_2 = 0; d_2 < 4; d_2++) {
              const float e = e_row[d_2 + i_33];
              const float v_40 = pl::quotient(e, sum, by);
              doubt = doubt || pl::doubtful(e, v_40, by);
              y_own_1[d_2] = v_40;
            }
            if (doubt) {
              PL_UNROLL
              for (index_t d_2_1 = 0; d_2_1 < 4; d_2_1++) {
                const float e_2 = e_row[d_2_1 + i_33];
                const float v_40_1 = e_2 / sum;
                y_own_1[d_2_1] = v_40_1;
              }
            }
            pl::store_many<4>(&y[i_36], &y_own_1[0]);
          }
        }
      }
    } else {
      __syncthreads();  // what the last turn left in shared memory has been read
      const index_t i_41 = v_43 - pl::rest(v_43, 4);
      const index_t v_46 = aligned ? i_41 : 0;
      PL_UNROLL_SOME
      for (index_t v_48 = pl::thread(), v_48_end = pl::quot(v_46, 4); v_48 < v_48_end; v_48 += pl::threads()) {
        const index_t i_42 = 4 * v_48;
        pl::copy_many<4>(&n_lot[i_42], &n[i_42 + v_44]);
      }
      for (index_t i_44 = v_46 + pl::thread(); i_44 < v_43; i_44 += pl::threads()) {
        n_lot[i_44] = n[i_44 + v_44];
      }
      __syncthreads();
      for (index_t time = 0, time_end = pl::min(pl::quot(i_49, rows), 4); time < time_end; time++) {
        const index_t thread_1 = pl::thread();
        const index_t lane_1 = pl::rest(thread_1, v_10);
        const index_t place_1 = pl::quot(thread_1, v_10);
        const index_t v_53 = place_1 + (i_50 + time) * rows < v_22 ? v : 0;
        const index_t i_59 = lane_1 + (place_1 + rows * time) * v;
        float e_row_1[8] = {};
        float n_row_2[8] = {};
        {
          const index_t t_4 = pl::thread();
          PL_UNROLL
          for (index_t r_4 = 0; r_4 < 8; r_4++) {
            const index_t v_55 = r_4 * v_10;
            const index_t i_60 = i_59 + v_55;
            if (lane_1 + v_55 < v_53) {
              const float x = n_lot[i_60];
              n_row_2[r_4] = x;
            }
          }
        }
        float max_1 = -pl::inf();
        {
          const index_t t_5 = pl::thread();
          PL_UNROLL
          for (index_t r_5 = 0; r_5 < 8; r_5++) {
            if (lane_1 + r_5 * v_10 < v_53) {
              const float n_3 = n_row_2[r_5];
              max_1 = pl::max(max_1, n_3);
            }
          }
        }
        max_1 = pl::lanes_max(max_1, v_10);
        float sum_1 = 0.0f;
        {
          const index_t t_6 = pl::thread();
          PL_UNROLL
          for (index_t r_6 = 0; r_6 < 8; r_6++) {
            if (lane_1 + r_6 * v_10 < v_53) {
              const float n_4 = n_row_2[r_6];
              const float v_64 = n_4 - max_1;
              const float v_65 = pl::exp(v_64);
              sum_1 += v_65;
              e_row_1[r_6] = v_65;
            }
          }
        }
        sum_1 = pl::lanes_sum(sum_1, v_10);
        {
          const index_t t_7 = pl::thread();
          PL_UNROLL
          for (index_t r_7 = 0; r_7 < 8; r_7++) {
            const index_t v_66 = r_7 * v_10;
            const index_t i_67 = i_59 + v_66;
            if (lane_1 + v_66 < v_53) {
              const float e_1 = e_row_1[r_7];
              const float v_68 = e_1 / sum_1;
              n_lot[i_67] = v_68;
            }
          }
        }
      }
      __syncthreads();
      const index_t v_69 = aligned_1 ? i_41 : 0;
      PL_UNROLL_SOME
      for (index_t v_71 = pl::thread(), v_71_end = pl::quot(v_69, 4); v_71 < v_71_end; v_71 += pl::threads()) {
        const index_t i_68 = 4 * v_71;
        pl::copy_many<4>(&y[i_68 + v_44], &n_lot[i_68]);
      }
      for (index_t i_70 = v_69 + pl::thread(); i_70 < v_43; i_70 += pl::threads()) {
        y[i_70 + v_44] = n_lot[i_70];
      }
    }
  }
}

// layer_norm.softmax.relu6.y.long.begin
extern "C" __global__ void __launch_bounds__(256)
layer_norm_softmax_relu6_y_long_begin(int* __restrict__ y_counters, const index_t D0, const index_t K) {
  for (index_t i_1 = pl::grid_thread(), i_1_end = K > 16384 ? pl::max(D0, 0) + 1 : 0; i_1 < i_1_end;
      i_1 += pl::grid_threads()) {
    y_counters[i_1] = 0;
  }
}

// tests/cases/rows.plir:7: %y[..., k] = %e[..., k] / %s[...]
extern "C" __global__ void __launch_bounds__(512, PL_FIT(512, 3))
layer_norm_softmax_relu6_y_long(float* __restrict__ y, const float* __restrict__ n, int* __restrict__ y_counters,
    float* __restrict__ y_parts_0, double* __restrict__ y_parts_1, const index_t D0, const index_t K) {
  const index_t v = pl::max(K, 0);
  const index_t v_1 = pl::max(D0, 0);
  const index_t v_2 = v * v_1;
  const index_t v_4 = v_2 < 2097152 ? 0 : 4096;
  const index_t v_6 = v_2 < 8388608 ? 0 : 8192;
  const index_t i_2 = v_4 + v_6 + 4096;
  const index_t parts = pl::quot(v + v_4 + v_6 + 4095, i_2);
  const index_t i_14 = parts - 1;
  const bool aligned = pl::aligned(n, 16);
  const bool aligned_1 = pl::aligned(y, 16);
  for (index_t turn = index_t(pl::ticket(y_counters)), turn_end = K > 16384 ? (v_1 > 0 ? (2 * v_1 + 2) * parts : 0)
      : 0; turn < turn_end; turn = index_t(pl::ticket(y_counters))) {
    const index_t slot = pl::quot(turn, parts);
    const index_t part = pl::rest(turn, parts);
    const index_t step = pl::quot(slot, 2);
    const index_t round = pl::rest(slot, 2);
    const index_t i_11 = step - round;
    const bool v_13 = round == 0;
    const index_t v_14 = i_11 * v;
    const index_t v_15 = i_2 * part;
    const bool v_17 = i_14 == part;
    const index_t v_18 = (part + 1) * i_2;
    const index_t v_20 = i_11 * parts;
    const index_t i_17 = part + v_20;
    const index_t i_27 = K * step - K * round;
    const index_t i_57 = i_11 + 1;
    const bool v_38 = round == 1;
    if (i_11 >= 0 && i_11 < v_1) {
      if (v_13) {
        const index_t off = pl::rest(v_14, 4);
        const index_t i_12 = -off;
        const index_t v_16 = pl::max(i_12 + v_15, 0);
        const index_t v_19 = v_17 ? v : i_12 + v_18;
        float max = -pl::inf();
        const index_t v_24 = aligned ? pl::min(v_16 + pl::rest(4 - pl::rest(off + v_16, 4), 4), v_19) : v_19;
        const index_t v_25 = pl::quot(v_19 - v_24, 4);
        const index_t i_28 = i_27 + v_24;
        PL_UNROLL_SOME
        for (index_t v_26 = pl::thread(); v_26 < v_25; v_26 += pl::threads()) {
          float n_own_2[4];
          pl::load_many<4>(&n_own_2[0], &n[4 * v_26 + i_28]);
          PL_UNROLL
          for (index_t d = 0; d < 4; d++) {
            const float n_2 = n_own_2[d];
            max = pl::max(max, n_2);
          }
        }
        const index_t i_34 = -v_16;
        const index_t i_35 = i_34 + v_24;
        const index_t i_39 = -4 * v_25 + (i_34 + v_19);
        const index_t i_44 = 4 * v_25 + v_16;
        for (index_t i_40 = pl::thread(); i_40 < i_39; i_40 += pl::threads()) {
          max = pl::max(max, n[i_27 + (i_40 < i_35 ? i_40 + v_16 : i_40 + i_44)]);
        }
        max = pl::block_max(max);
        if (pl::leader()) {
          y_parts_0[i_17] = max;
        }
        float sum = 0.0f;
        PL_UNROLL_SOME
        for (index_t v_31 = pl::thread(); v_31 < v_25; v_31 += pl::threads()) {
          float n_own_3[4];
          pl::load_many<4>(&n_own_3[0], &n[i_28 + 4 * v_31]);
          PL_UNROLL
          for (index_t d_1 = 0; d_1 < 4; d_1++) {
            const float n_2_2 = n_own_3[d_1];
            const float v_32 = n_2_2 - max;
            sum += pl::exp(v_32);
          }
        }
        for (index_t i_52 = pl::thread(); i_52 < i_39; i_52 += pl::threads()) {
          const float v_36 = n[i_27 + (i_52 < i_35 ? i_52 + v_16 : i_44 + i_52)] - max;
          sum += pl::exp(v_36);
        }
        double wide = 0.0;
        wide = double(sum);
        wide = pl::block_sum(wide);
        if (pl::leader()) {
          y_parts_1[i_17] = wide;
        }
        pl::signal(&y_counters[i_57]);
      }
      if (v_38) {
        const index_t off_1 = pl::rest(v_14, 4);
        const index_t i_58 = -off_1;
        const index_t v_39 = pl::max(i_58 + v_15, 0);
        const index_t v_40 = v_17 ? v : i_58 + v_18;
        pl::await_count(&y_counters[i_57], parts);
        float max_1 = -pl::inf();
        for (index_t p = pl::thread(); p < parts; p += pl::threads()) {
          const float part_1 = y_parts_0[p + v_20];
          max_1 = pl::max(max_1, part_1);
        }
        max_1 = pl::block_max(max_1);
        double sum_1 = 0.0;
        const double v_42 = double(max_1);
        for (index_t p_1 = pl::thread(); p_1 < parts; p_1 += pl::threads()) {
          const index_t i_62 = p_1 + v_20;
          const double part_2 = y_parts_1[i_62];
          const float part_3 = y_parts_0[i_62];
          const bool v_46 = max_1 == part_3;
          sum_1 += v_46 ? part_2 : part_3 == -pl::inf() ? 0.0 : part_2 * pl::exp(double(part_3) - v_42);
        }
        sum_1 = pl::block_sum(sum_1);
        const float v_50 = float(sum_1);
        const index_t v_55 = aligned && aligned_1 ? pl::min(v_39 + pl::rest(4 - pl::rest(off_1 + v_39, 4), 4), v_40)
            : v_40;
        const index_t v_56 = pl::quot(v_40 - v_55, 4);
        const index_t i_71 = i_27 + v_55;
        const float by = pl::inverse(v_50);
        PL_UNROLL_SOME
        for (index_t v_57 = pl::thread(); v_57 < v_56; v_57 += pl::threads()) {
          float n_own_4[4];
          float y_own[4];
          const index_t i_72 = 4 * v_57 + i_71;
          pl::load_many<4>(&n_own_4[0], &n[i_72]);
          bool doubt = false;
          PL_UNROLL
          for (index_t d_2 = 0; d_2 < 4; d_2++) {
            const float n_4 = n_own_4[d_2];
            const float v_58 = n_4 - max_1;
            const float v_59 = pl::exp(v_58);
            const float v_60 = pl::quotient(v_59, v_50, by);
            doubt = doubt || pl::doubtful(v_59, v_60, by);
            y_own[d_2] = v_60;
          }
          if (doubt) {
            PL_UNROLL
            for (index_t d_2_1 = 0; d_2_1 < 4; d_2_1++) {
              const float n_4_1 = n_own_4[d_2_1];
              const float v_58_1 = n_4_1 - max_1;
              y_own[d_2_1] = pl::exp(v_58_1) / v_50;
            }
          }
          pl::store_many<4>(&y[i_72], &y_own[0]);
        }
        const index_t i_77 = -v_39;
        const index_t i_78 = i_77 + v_55;
        const index_t i_87 = 4 * v_56 + v_39;
        for (index_t i_83 = pl::thread(), i_83_end = -4 * v_56 + (i_77 + v_40); i_83 < i_83_end;
            i_83 += pl::threads()) {
          const index_t i_89 = i_27 + (i_83 < i_78 ? i_83 + v_39 : i_83 + i_87);
          const float v_63 = n[i_89] - max_1;
          y[i_89] = pl::exp(v_63) / v_50;
        }
      }
    }
  }
}

// tests/cases/rows.plir:7: %y[..., k] = %e[..., k] / %s[...]
extern "C" __global__ void __launch_bounds__(1024, 1)
layer_norm_softmax_relu6_y_longer(float* __restrict__ y, const float* __restrict__ n, const index_t D0,
    const index_t K) {
  const index_t threads = pl::threads();
  const index_t v = pl::max(K, 0);
  const bool v_7 = pl::rest(v, 4) == 0;
  const bool aligned_1 = pl::aligned(y, 16);
  const bool v_11 = aligned_1
      && (pl::aligned(n, 16) && (v_7 && (v <= 16 * threads && pl::rest(pl::max(v, 0), 4) == 0 && v_7)));
  for (index_t d0 = pl::block(), d0_end = K > 8192 && K <= 16384 ? (K > 0 ? pl::max(D0, 0) : 0) : 0; d0 < d0_end;
      d0 += pl::blocks()) {
    const index_t v_18 = K * d0;
    if (v_11) {
      float e_row[16] = {};
      float n_row[16] = {};
      {
        const index_t t = pl::thread();
        const index_t v_15 = pl::quot(t, 32);
        const index_t v_16 = pl::rest(t, 32);
        const index_t i_12 = -512 * v_15 + v + -4 * v_16;
        const index_t i_14 = 512 * v_15 + v_18 + 4 * v_16;
        PL_UNROLL
        for (index_t r = 0; r < 4; r++) {
          const index_t i_1 = 4 * r;
          const index_t i_2 = 128 * r;
          const index_t i_15 = i_14 + i_2;
          if (i_2 < i_12) {
            pl::load_many<4>(&n_row[i_1], &n[i_15]);
          }
        }
      }
      float max = -pl::inf();
      {
        const index_t t_1 = pl::thread();
        const index_t i_27 = -512 * pl::quot(t_1, 32) + v + -4 * pl::rest(t_1, 32);
        PL_UNROLL
        for (index_t r_1 = 0; r_1 < 4; r_1++) {
          const index_t i_16 = 4 * r_1;
          if (128 * r_1 < i_27) {
            PL_UNROLL
            for (index_t d = 0; d < 4; d++) {
              const float n_2 = n_row[d + i_16];
              max = pl::max(max, n_2);
            }
          }
        }
      }
      max = pl::block_max(max);
      float sum = 0.0f;
      {
        const index_t t_2 = pl::thread();
        const index_t i_45 = -512 * pl::quot(t_2, 32) + v + -4 * pl::rest(t_2, 32);
        PL_UNROLL
        for (index_t r_2 = 0; r_2 < 4; r_2++) {
          const index_t i_34 = 4 * r_2;
          if (128 * r_2 < i_45) {
            PL_UNROLL
            for (index_t d_1 = 0; d_1 < 4; d_1++) {
              const index_t i_47 = d_1 + i_34;
              const float n_1 = n_row[i_47];
              const float v_25 = n_1 - max;
              const float v_26 = pl::exp(v_25);
              sum += v_26;
              e_row[i_47] = v_26;
            }
          }
        }
      }
      sum = pl::block_sum(sum);
      const float by = pl::inverse(sum);
      {
        const index_t t_3 = pl::thread();
        const index_t v_27 = pl::quot(t_3, 32);
        const index_t v_28 = pl::rest(t_3, 32);
        const index_t i_63 = -512 * v_27 + v + -4 * v_28;
        const index_t i_67 = 4 * v_28 + (512 * v_27 + v_18);
        PL_UNROLL
        for (index_t r_3 = 0; r_3 < 4; r_3++) {
          const index_t i_52 = 4 * r_3;
          const index_t i_53 = 128 * r_3;
          const index_t i_68 = i_53 + i_67;
          if (i_53 < i_63) {
            float y_own[4];
            bool doubt = false;
            PL_UNROLL
            for (index_t d_2 = 0; d_2 < 4; d_2++) {
              const float e = e_row[d_2 + i_52];
              const float v_30 = pl::quotient(e, sum, by);
              doubt = doubt || pl::doubtful(e, v_30, by);
              y_own[d_2] = v_30;
            }
            if (doubt) {
              PL_UNROLL
              for (index_t d_2_1 = 0; d_2_1 < 4; d_2_1++) {
                const float e_2 = e_row[d_2_1 + i_52];
                const float v_30_1 = e_2 / sum;
                y_own[d_2_1] = v_30_1;
              }
            }
            pl::store_many<4>(&y[i_68], &y_own[0]);
          }
        }
      }
    } else {
      float e_row_1[16] = {};
      float n_row_2[16] = {};
      {
        const index_t t_4 = pl::thread();
        const index_t v_31 = pl::quot(t_4, 32);
        const index_t v_32 = pl::rest(t_4, 32);
        const index_t i_77 = -512 * v_31 + v - v_32;
        const index_t i_79 = 512 * v_31 + v_18 + v_32;
        PL_UNROLL
        for (index_t r_4 = 0; r_4 < 16; r_4++) {
          const index_t i_70 = 32 * r_4;
          const index_t i_80 = i_70 + i_79;
          if (i_70 < i_77) {
            n_row_2[r_4] = n[i_80];
          }
        }
      }
      float max_1 = -pl::inf();
      {
        const index_t t_5 = pl::thread();
        const index_t i_88 = -512 * pl::quot(t_5, 32) + v - pl::rest(t_5, 32);
        PL_UNROLL
        for (index_t r_5 = 0; r_5 < 16; r_5++) {
          if (32 * r_5 < i_88) {
            const float n_4 = n_row_2[r_5];
            max_1 = pl::max(max_1, n_4);
          }
        }
      }
      max_1 = pl::block_max(max_1);
      float sum_1 = 0.0f;
      {
        const index_t t_6 = pl::thread();
        const index_t i_99 = -512 * pl::quot(t_6, 32) + v - pl::rest(t_6, 32);
        PL_UNROLL
        for (index_t r_6 = 0; r_6 < 16; r_6++) {
          if (32 * r_6 < i_99) {
            const float n_5 = n_row_2[r_6];
            const float v_40 = n_5 - max_1;
            const float v_41 = pl::exp(v_40);
            sum_1 += v_41;
            e_row_1[r_6] = v_41;
          }
        }
      }
      sum_1 = pl::block_sum(sum_1);
      {
        const index_t t_7 = pl::thread();
        const index_t v_42 = pl::quot(t_7, 32);
        const index_t v_43 = pl::rest(t_7, 32);
        const index_t i_110 = -512 * v_42 + v - v_43;
        const index_t i_112 = 512 * v_42 + v_18 + v_43;
        PL_UNROLL
        for (index_t r_7 = 0; r_7 < 16; r_7++) {
          const index_t i_103 = 32 * r_7;
          const index_t i_113 = i_103 + i_112;
          if (i_103 < i_110) {
            float y_own_1[1];
            const float e_1 = e_row_1[r_7];
            const float v_45 = e_1 / sum_1;
            y_own_1[0] = v_45;
            const float y_2 = y_own_1[0];
            y[i_113] = y_2;
          }
        }
      }
    }
  }
}

// tests/cases/rows.plir:7: %y[..., k] = %e[..., k] / %s[...]
extern "C" __global__ void __launch_bounds__(512, PL_FIT(512, 3))
layer_norm_softmax_relu6_y(float* __restrict__ y, const float* __restrict__ n, const index_t D0, const index_t K) {
  const index_t threads = pl::threads();
  const index_t v = pl::max(K, 0);
  const bool v_7 = pl::rest(v, 4) == 0;
  const bool aligned_1 = pl::aligned(y, 16);
  const bool v_11 = aligned_1
      && (pl::aligned(n, 16) && (v_7 && (v <= 16 * threads && pl::rest(pl::max(v, 0), 4) == 0 && v_7)));
  for (index_t d0 = pl::block(), d0_end = K > 256 && K <= 8192 ? (K > 0 ? pl::max(D0, 0) : 0) : 0; d0 < d0_end;
      d0 += pl::blocks()) {
    const index_t v_18 = K * d0;
    if (v_11) {
      float e_row[16] = {};
      float n_row[16] = {};
      {
        const index_t t = pl::thread_again();
        const index_t v_15 = pl::quot(t, 32);
        const index_t v_16 = pl::rest(t, 32);
        const index_t i_12 = -512 * v_15 + v + -4 * v_16;
        const index_t i_14 = 512 * v_15 + v_18 + 4 * v_16;
        PL_UNROLL
        for (index_t r = 0; r < 4; r++) {
          const index_t i_1 = 4 * r;
          const index_t i_2 = 128 * r;
          const index_t i_15 = i_14 + i_2;
          if (i_2 < i_12) {
            pl::load_many<4>(&n_row[i_1], &n[i_15]);
          }
        }
      }
      float max = -pl::inf();
      {
        const index_t t_1 = pl::thread_again();
        const index_t i_27 = -512 * pl::quot(t_1, 32) + v + -4 * pl::rest(t_1, 32);
        PL_UNROLL
        for (index_t r_1 = 0; r_1 < 4; r_1++) {
          const index_t i_16 = 4 * r_1;
          if (128 * r_1 < i_27) {
            PL_UNROLL
            for (index_t d = 0; d < 4; d++) {
              const float n_2 = n_row[d + i_16];
              max = pl::max(max, n_2);
            }
          }
        }
      }
      max = pl::block_max(max);
      float sum = 0.0f;
      {
        const index_t t_2 = pl::thread_again();
        const index_t i_45 = -512 * pl::quot(t_2, 32) + v + -4 * pl::rest(t_2, 32);
        PL_UNROLL
        for (index_t r_2 = 0; r_2 < 4; r_2++) {
          const index_t i_34 = 4 * r_2;
          if (128 * r_2 < i_45) {
            PL_UNROLL
            for (index_t d_1 = 0; d_1 < 4; d_1++) {
              const index_t i_47 = d_1 + i_34;
              const float n_1 = n_row[i_47];
              const float v_25 = n_1 - max;
              const float v_26 = pl::exp(v_25);
              sum += v_26;
              e_row[i_47] = v_26;
            }
          }
        }
      }
      sum = pl::block_sum(sum);
      const float by = pl::inverse(sum);
      {
        const index_t t_3 = pl::thread_again();
        const index_t v_27 = pl::quot(t_3, 32);
        const index_t v_28 = pl::rest(t_3, 32);
        const index_t i_63 = -512 * v_27 + v + -4 * v_28;
        const index_t i_67 = 4 * v_28 + (512 * v_27 + v_18);
        PL_UNROLL
        for (index_t r_3 = 0; r_3 < 4; r_3++) {
          const index_t i_52 = 4 * r_3;
          const index_t i_53 = 128 * r_3;
          const index_t i_68 = i_53 + i_67;
          if (i_53 < i_63) {
            float y_own[4];
            bool doubt = false;
            PL_UNROLL
            for (index_t d_2 = 0; d_2 < 4; d_2++) {
              const float e = e_row[d_2 + i_52];
              const float v_30 = pl::quotient(e, sum, by);
              doubt = doubt || pl::doubtful(e, v_30, by);
              y_own[d_2] = v_30;
            }
            if (doubt) {
              PL_UNROLL
              for (index_t d_2_1 = 0; d_2_1 < 4; d_2_1++) {
                const float e_2 = e_row[d_2_1 + i_52];
                const float v_30_1 = e_2 / sum;
                y_own[d_2_1] = v_30_1;
              }
            }
            pl::store_many<4>(&y[i_68], &y_own[0]);
          }
        }
      }
    } else {
      float e_row_1[16] = {};
      float n_row_2[16] = {};
      {
        const index_t t_4 = pl::thread_again();
        const index_t v_31 = pl::quot(t_4, 32);
        const index_t v_32 = pl::rest(t_4, 32);
        const index_t i_77 = -512 * v_31 + v - v_32;
        const index_t i_79 = 512 * v_31 + v_18 + v_32;
        PL_UNROLL
        for (index_t r_4 = 0; r_4 < 16; r_4++) {
          const index_t i_70 = 32 * r_4;
          const index_t i_80 = i_70 + i_79;
          if (i_70 < i_77) {
            n_row_2[r_4] = n[i_80];
          }
        }
      }
      float max_1 = -pl::inf();
      {
        const index_t t_5 = pl::thread_again();
        const index_t i_88 = -512 * pl::quot(t_5, 32) + v - pl::rest(t_5, 32);
        PL_UNROLL
        for (index_t r_5 = 0; r_5 < 16; r_5++) {
          if (32 * r_5 < i_88) {
            const float n_4 = n_row_2[r_5];
            max_1 = pl::max(max_1, n_4);
          }
        }
      }
      max_1 = pl::block_max(max_1);
      float sum_1 = 0.0f;
      {
        const index_t t_6 = pl::thread_again();
        const index_t i_99 = -512 * pl::quot(t_6, 32) + v - pl::rest(t_6, 32);
        PL_UNROLL
        for (index_t r_6 = 0; r_6 < 16; r_6++) {
          if (32 * r_6 < i_99) {
            const float n_5 = n_row_2[r_6];
            const float v_40 = n_5 - max_1;
            const float v_41 = pl::exp(v_40);
            sum_1 += v_41;
            e_row_1[r_6] = v_41;
          }
        }
      }
      sum_1 = pl::block_sum(sum_1);
      {
        const index_t t_7 = pl::thread_again();
        const index_t v_42 = pl::quot(t_7, 32);
        const index_t v_43 = pl::rest(t_7, 32);
        const index_t i_110 = -512 * v_42 + v - v_43;
        const index_t i_112 = 512 * v_42 + v_18 + v_43;
        PL_UNROLL
        for (index_t r_7 = 0; r_7 < 16; r_7++) {
          const index_t i_103 = 32 * r_7;
          const index_t i_113 = i_103 + i_112;
          if (i_103 < i_110) {
            float y_own_1[1];
            const float e_1 = e_row_1[r_7];
            const float v_45 = e_1 / sum_1;
            y_own_1[0] = v_45;
            const float y_2 = y_own_1[0];
            y[i_113] = y_2;
          }
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
