#include "pipelink.cuh"
namespace pl = pipelink;
using namespace pl::types;

// tests/cases/edge_gamma.plir:18: compute  { %y[...] = clamp(%x[...], 0, 1) ** (1 / gamma) }
extern "C" __global__ void __launch_bounds__(128, 4)
sobel_3x3_gamma_correct_y(const float* __restrict__ x, float* __restrict__ y, const index_t N, const index_t H,
    const index_t W) {
  const index_t v = pl::max(W, 0);
  const index_t v_1 = pl::floordiv(v + 3, 4);
  const index_t v_3 = pl::floordiv(pl::max(H, 0) + 7, 8);
  const index_t i_15 = H - 1;
  const index_t i_18 = 3 * W;
  const index_t stride = H * i_18;
  const index_t i_38 = W - 1;
  const index_t stride_1 = H * W;
  const index_t i_160 = 6 * W;
  const index_t i_210 = 9 * W;
  const index_t i_232 = 2 * W;
  const index_t i_260 = 12 * W;
  const index_t i_309 = 15 * W;
  const index_t i_331 = 4 * W;
  const index_t i_359 = 18 * W;
  const index_t i_381 = 5 * W;
  const index_t i_409 = 21 * W;
  const index_t i_478 = 7 * W;
  const bool aligned_1 = pl::aligned(y, 16);
  const bool v_1494 = pl::rest(v, 4) == 0 && (pl::aligned(x, 16) && aligned_1);
  for (index_t run = pl::grid_thread(), run_end = pl::max(N, 0) * (v_1 * v_3); run < run_end;
      run += pl::grid_threads()) {
    const index_t v_7 = pl::rest(run, v_1);
    const index_t v_8 = pl::quot(run, v_1);
    const index_t v_9 = pl::rest(v_8, v_3);
    const index_t v_10 = pl::quot(v_8, v_3);
    const index_t i_2 = 8 * v_9;
    const index_t i_3 = 4 * v_7;
    const index_t i_16 = 12 * v_7;
    const index_t v_14 = stride * v_10;
    const index_t i_21 = i_18 * pl::min(pl::max(i_2 - 1, 0), i_15) + v_14;
    const index_t i_22 = i_16 + i_21;
    const index_t i_26 = v_14 + i_18 * i_2;
    const index_t i_27 = i_16 + i_26;
    const index_t i_29 = 8 * (i_18 * v_9);
    const index_t i_34 = i_29 + (i_18 + v_14);
    const index_t i_35 = i_16 + i_34;
    const index_t i_39 = 3 * pl::min(pl::max(i_3 - 1, 0), i_38);
    const index_t i_41 = i_21 + i_39;
    const index_t i_43 = i_26 + i_39;
    const index_t i_45 = i_34 + i_39;
    const index_t i_48 = i_22 + 4;
    const index_t i_50 = i_27 + 4;
    const index_t i_52 = i_35 + 4;
    const index_t i_55 = i_41 + 1;
    const index_t i_57 = i_43 + 1;
    const index_t i_59 = i_45 + 1;
    const index_t i_74 = i_41 + 2;
    const index_t i_76 = i_43 + 2;
    const index_t i_78 = i_45 + 2;
    const index_t v_79 = W * i_2;
    const index_t v_80 = stride_1 * v_10;
    const index_t i_85 = i_3 + v_79 + v_80;
    const index_t i_104 = i_22 + 8;
    const index_t i_106 = i_27 + 8;
    const index_t i_108 = i_35 + 8;
    const index_t i_136 = i_3 + 4;
    const index_t i_137 = 3 * pl::min(pl::max(i_136, 0), i_38);
    const index_t i_139 = i_137 + i_21;
    const index_t i_141 = i_137 + i_26;
    const index_t i_143 = i_137 + i_34;
    const index_t i_146 = i_139 + 1;
    const index_t i_148 = i_141 + 1;
    const index_t i_150 = i_143 + 1;
    const index_t i_153 = i_139 + 2;
    const index_t i_155 = i_141 + 2;
    const index_t i_157 = i_143 + 2;
    const index_t i_165 = i_160 + v_14 + i_29;
    const index_t i_166 = i_16 + i_165;
    const index_t i_169 = i_165 + i_39;
    const index_t i_171 = i_166 + 4;
    const index_t i_173 = i_169 + 1;
    const index_t i_179 = i_169 + 2;
    const index_t i_182 = 8 * (W * v_9);
    const index_t i_183 = W + i_182;
    const index_t i_185 = i_183 + i_3 + v_80;
    const index_t i_191 = i_166 + 8;
    const index_t i_203 = i_137 + i_165;
    const index_t i_205 = i_203 + 1;
    const index_t i_207 = i_203 + 2;
    const index_t i_215 = i_210 + v_14 + i_29;
    const index_t i_216 = i_16 + i_215;
    const index_t i_219 = i_215 + i_39;
    const index_t i_221 = i_216 + 4;
    const index_t i_223 = i_219 + 1;
    const index_t i_229 = i_219 + 2;
    const index_t i_233 = i_182 + i_232;
    const index_t i_235 = i_233 + i_3 + v_80;
    const index_t i_241 = i_216 + 8;
    const index_t i_253 = i_137 + i_215;
    const index_t i_255 = i_253 + 1;
    const index_t i_257 = i_253 + 2;
    const index_t i_265 = i_260 + v_14 + i_29;
    const index_t i_266 = i_16 + i_265;
    const index_t i_269 = i_265 + i_39;
    const index_t i_271 = i_266 + 4;
    const index_t i_273 = i_269 + 1;
    const index_t i_279 = i_269 + 2;
    const index_t i_282 = i_18 + i_182;
    const index_t i_284 = i_282 + i_3 + v_80;
    const index_t i_290 = i_266 + 8;
    const index_t i_302 = i_137 + i_265;
    const index_t i_304 = i_302 + 1;
    const index_t i_306 = i_302 + 2;
    const index_t i_314 = i_29 + (i_309 + v_14);
    const index_t i_315 = i_16 + i_314;
    const index_t i_318 = i_314 + i_39;
    const index_t i_320 = i_315 + 4;
    const index_t i_322 = i_318 + 1;
    const index_t i_328 = i_318 + 2;
    const index_t i_332 = i_182 + i_331;
    const index_t i_334 = i_3 + i_332 + v_80;
    const index_t i_340 = i_315 + 8;
    const index_t i_352 = i_137 + i_314;
    const index_t i_354 = i_352 + 1;
    const index_t i_356 = i_352 + 2;
    const index_t i_364 = i_29 + (i_359 + v_14);
    const index_t i_365 = i_16 + i_364;
    const index_t i_368 = i_364 + i_39;
    const index_t i_370 = i_365 + 4;
    const index_t i_372 = i_368 + 1;
    const index_t i_378 = i_368 + 2;
    const index_t i_382 = i_182 + i_381;
    const index_t i_384 = i_3 + i_382 + v_80;
    const index_t i_390 = i_365 + 8;
    const index_t i_402 = i_137 + i_364;
    const index_t i_404 = i_402 + 1;
    const index_t i_406 = i_402 + 2;
    const index_t i_414 = i_29 + (i_409 + v_14);
    const index_t i_415 = i_16 + i_414;
    const index_t i_418 = i_39 + i_414;
    const index_t i_420 = i_415 + 4;
    const index_t i_422 = i_418 + 1;
    const index_t i_428 = i_418 + 2;
    const index_t i_431 = i_160 + i_182;
    const index_t i_433 = i_3 + i_431 + v_80;
    const index_t i_439 = i_415 + 8;
    const index_t i_451 = i_137 + i_414;
    const index_t i_453 = i_451 + 1;
    const index_t i_455 = i_451 + 2;
    const index_t i_458 = i_2 + 8;
    const index_t i_461 = i_18 * pl::min(pl::max(i_458, 0), i_15) + v_14;
    const index_t i_462 = i_16 + i_461;
    const index_t i_465 = i_39 + i_461;
    const index_t i_467 = i_462 + 4;
    const index_t i_469 = i_465 + 1;
    const index_t i_475 = i_465 + 2;
    const index_t i_479 = i_182 + i_478;
    const index_t i_481 = i_3 + i_479 + v_80;
    const index_t i_487 = i_462 + 8;
    const index_t i_499 = i_137 + i_461;
    const index_t i_501 = i_499 + 1;
    const index_t i_503 = i_499 + 2;
    const bool v_1495 = i_458 <= H;
    const index_t v_1496 = pl::min(i_458, H);
    const index_t i_633 = v_79 + v_80;
    const index_t i_660 = i_183 + v_80;
    const index_t i_681 = i_233 + v_80;
    const index_t i_702 = i_282 + v_80;
    const index_t i_723 = i_332 + v_80;
    const index_t i_744 = i_382 + v_80;
    const index_t i_765 = i_431 + v_80;
    const index_t i_786 = i_479 + v_80;
    if (v_1494) {
      if (v_1495) {
        float xs[4];
        pl::load_many<4>(&xs[0], &x[i_22]);
        const float x_2 = xs[3];
        float xs_3[4];
        pl::load_many<4>(&xs_3[0], &x[i_27]);
        const float x_1 = xs_3[3];
        float xs_6[4];
        pl::load_many<4>(&xs_6[0], &x[i_35]);
        const float x_2_2 = xs_6[3];
        const float v_19 = pl::fma(2.0f, x_1, x_2) + x_2_2;
        const float x_3 = x[i_41];
        const float x_4 = x[i_43];
        const float x_5 = x[i_45];
        const float v_25 = v_19 - (pl::fma(2.0f, x_4, x_3) + x_5);
        const float x_6 = xs_6[0];
        const float v_29 = pl::fma(2.0f, x_6, x_5) + x_2_2;
        const float x_7 = xs[0];
        const float v_33 = v_29 - (pl::fma(2.0f, x_7, x_3) + x_2);
        float xs_1[4];
        pl::load_many<4>(&xs_1[0], &x[i_48]);
        const float x_8 = xs_1[0];
        float xs_4[4];
        pl::load_many<4>(&xs_4[0], &x[i_50]);
        const float x_9 = xs_4[0];
        float xs_7[4];
        pl::load_many<4>(&xs_7[0], &x[i_52]);
        const float x_10 = xs_7[0];
        const float v_39 = pl::fma(2.0f, x_9, x_8) + x_10;
        const float x_11 = x[i_55];
        const float x_12 = x[i_57];
        const float x_13 = x[i_59];
        const float v_43 = v_39 - (pl::fma(2.0f, x_12, x_11) + x_13);
        const float x_14 = xs_6[1];
        const float v_47 = pl::fma(2.0f, x_14, x_13) + x_10;
        const float x_15 = xs[1];
        const float v_51 = v_47 - (pl::fma(2.0f, x_15, x_11) + x_8);
        const float x_16 = xs_1[1];
        const float x_17 = xs_4[1];
        const float x_18 = xs_7[1];
        const float v_58 = pl::fma(2.0f, x_17, x_16) + x_18;
        const float x_19 = x[i_74];
        const float x_20 = x[i_76];
        const float x_21 = x[i_78];
        const float v_62 = v_58 - (pl::fma(2.0f, x_20, x_19) + x_21);
        const float x_22 = xs_6[2];
        const float v_66 = pl::fma(2.0f, x_22, x_21) + x_18;
        const float x_23 = xs[2];
        const float v_70 = v_66 - (pl::fma(2.0f, x_23, x_19) + x_16);
        float ys[4];
        ys[0] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_25, v_25, v_33 * v_33))
            + pl::sqrt(pl::fma(v_43, v_43, v_51 * v_51)) + pl::sqrt(pl::fma(v_62, v_62, v_70 * v_70))) * 0.33333334f,
            1.0f), 0.45454544f);
        const float x_24 = xs_1[2];
        const float x_25 = xs_4[2];
        const float x_26 = xs_7[2];
        const float v_83 = pl::fma(2.0f, x_25, x_24) + x_26;
        const float x_27 = xs_3[0];
        const float v_87 = v_83 - (pl::fma(2.0f, x_27, x_7) + x_6);
        const float v_91 = pl::fma(2.0f, x_2_2, x_6) + x_26;
        const float v_95 = v_91 - (pl::fma(2.0f, x_2, x_7) + x_24);
        const float x_28 = xs_1[3];
        const float x_29 = xs_4[3];
        const float x_30 = xs_7[3];
        const float v_101 = pl::fma(2.0f, x_29, x_28) + x_30;
        const float x_31 = xs_3[1];
        const float v_105 = v_101 - (pl::fma(2.0f, x_31, x_15) + x_14);
        const float v_109 = pl::fma(2.0f, x_10, x_14) + x_30;
        const float v_113 = v_109 - (pl::fma(2.0f, x_8, x_15) + x_28);
        float xs_2[4];
        pl::load_many<4>(&xs_2[0], &x[i_104]);
        const float x_32 = xs_2[0];
        float xs_5[4];
        pl::load_many<4>(&xs_5[0], &x[i_106]);
        const float x_33 = xs_5[0];
        float xs_8[4];
        pl::load_many<4>(&xs_8[0], &x[i_108]);
        const float x_34 = xs_8[0];
        const float v_120 = pl::fma(2.0f, x_33, x_32) + x_34;
        const float x_35 = xs_3[2];
        const float v_124 = v_120 - (pl::fma(2.0f, x_35, x_23) + x_22);
        const float v_128 = pl::fma(2.0f, x_18, x_22) + x_34;
        const float v_132 = v_128 - (pl::fma(2.0f, x_16, x_23) + x_32);
        ys[1] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_105, v_105, v_113 * v_113))
            + pl::sqrt(pl::fma(v_87, v_87, v_95 * v_95)) + pl::sqrt(pl::fma(v_124, v_124, v_132 * v_132)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_36 = xs_2[1];
        const float x_37 = xs_5[1];
        const float x_38 = xs_8[1];
        const float v_144 = pl::fma(2.0f, x_37, x_36) + x_38 - v_19;
        const float v_148 = pl::fma(2.0f, x_26, x_2_2) + x_38;
        const float v_152 = v_148 - (pl::fma(2.0f, x_24, x_2) + x_36);
        const float x_39 = xs_2[2];
        const float x_40 = xs_5[2];
        const float x_41 = xs_8[2];
        const float v_159 = pl::fma(2.0f, x_40, x_39) + x_41 - v_39;
        const float v_163 = pl::fma(2.0f, x_30, x_10) + x_41;
        const float v_167 = v_163 - (pl::fma(2.0f, x_28, x_8) + x_39);
        const float x_42 = xs_2[3];
        const float x_43 = xs_5[3];
        const float x_44 = xs_8[3];
        const float v_175 = pl::fma(2.0f, x_43, x_42) + x_44 - v_58;
        const float v_179 = pl::fma(2.0f, x_34, x_18) + x_44;
        const float v_183 = v_179 - (pl::fma(2.0f, x_32, x_16) + x_42);
        ys[2] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_144, v_144, v_152 * v_152))
            + pl::sqrt(pl::fma(v_159, v_159, v_167 * v_167)) + pl::sqrt(pl::fma(v_175, v_175, v_183 * v_183)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_45 = x[i_139];
        const float x_46 = x[i_141];
        const float x_47 = x[i_143];
        const float v_197 = pl::fma(2.0f, x_46, x_45) + x_47 - v_83;
        const float v_201 = pl::fma(2.0f, x_38, x_26) + x_47;
        const float v_205 = v_201 - (pl::fma(2.0f, x_36, x_24) + x_45);
        const float x_48 = x[i_146];
        const float x_49 = x[i_148];
        const float x_50 = x[i_150];
        const float v_212 = pl::fma(2.0f, x_49, x_48) + x_50 - v_101;
        const float v_216 = pl::fma(2.0f, x_41, x_30) + x_50;
        const float v_220 = v_216 - (pl::fma(2.0f, x_39, x_28) + x_48);
        const float x_51 = x[i_153];
        const float x_52 = x[i_155];
        const float x_53 = x[i_157];
        const float v_228 = pl::fma(2.0f, x_52, x_51) + x_53 - v_120;
        const float v_232 = pl::fma(2.0f, x_44, x_34) + x_53;
        const float v_236 = v_232 - (pl::fma(2.0f, x_42, x_32) + x_51);
        ys[3] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_197, v_197, v_205 * v_205))
            + pl::sqrt(pl::fma(v_212, v_212, v_220 * v_220)) + pl::sqrt(pl::fma(v_228, v_228, v_236 * v_236)))
            * 0.33333334f, 1.0f), 0.45454544f);
        pl::store_many<4>(&y[i_85], &ys[0]);
        float xs_9[4];
        pl::load_many<4>(&xs_9[0], &x[i_166]);
        const float x_54 = xs_9[3];
        const float v_246 = pl::fma(2.0f, x_2_2, x_1) + x_54;
        const float x_55 = x[i_169];
        const float v_250 = v_246 - (pl::fma(2.0f, x_5, x_4) + x_55);
        const float x_56 = xs_9[0];
        const float v_254 = pl::fma(2.0f, x_56, x_55) + x_54;
        const float v_257 = v_254 - (pl::fma(2.0f, x_27, x_4) + x_1);
        float xs_10[4];
        pl::load_many<4>(&xs_10[0], &x[i_171]);
        const float x_57 = xs_10[0];
        const float v_262 = pl::fma(2.0f, x_10, x_9) + x_57;
        const float x_58 = x[i_173];
        const float v_266 = v_262 - (pl::fma(2.0f, x_13, x_12) + x_58);
        const float x_59 = xs_9[1];
        const float v_270 = pl::fma(2.0f, x_59, x_58) + x_57;
        const float v_273 = v_270 - (pl::fma(2.0f, x_31, x_12) + x_9);
        const float x_60 = xs_10[1];
        const float v_279 = pl::fma(2.0f, x_18, x_17) + x_60;
        const float x_61 = x[i_179];
        const float v_283 = v_279 - (pl::fma(2.0f, x_21, x_20) + x_61);
        const float x_62 = xs_9[2];
        const float v_287 = pl::fma(2.0f, x_62, x_61) + x_60;
        const float v_290 = v_287 - (pl::fma(2.0f, x_35, x_20) + x_17);
        float ys_1[4];
        ys_1[0] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_250, v_250, v_257 * v_257))
            + pl::sqrt(pl::fma(v_266, v_266, v_273 * v_273)) + pl::sqrt(pl::fma(v_283, v_283, v_290 * v_290)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_63 = xs_10[2];
        const float v_301 = pl::fma(2.0f, x_26, x_25) + x_63;
        const float v_304 = v_301 - (pl::fma(2.0f, x_6, x_27) + x_56);
        const float v_308 = pl::fma(2.0f, x_54, x_56) + x_63;
        const float v_311 = v_308 - (pl::fma(2.0f, x_1, x_27) + x_25);
        const float x_64 = xs_10[3];
        const float v_316 = pl::fma(2.0f, x_30, x_29) + x_64;
        const float v_319 = v_316 - (pl::fma(2.0f, x_14, x_31) + x_59);
        const float v_323 = pl::fma(2.0f, x_57, x_59) + x_64;
        const float v_326 = v_323 - (pl::fma(2.0f, x_9, x_31) + x_29);
        float xs_11[4];
        pl::load_many<4>(&xs_11[0], &x[i_191]);
        const float x_65 = xs_11[0];
        const float v_332 = pl::fma(2.0f, x_34, x_33) + x_65;
        const float v_335 = v_332 - (pl::fma(2.0f, x_22, x_35) + x_62);
        const float v_339 = pl::fma(2.0f, x_60, x_62) + x_65;
        const float v_342 = v_339 - (pl::fma(2.0f, x_17, x_35) + x_33);
        ys_1[1] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_304, v_304, v_311 * v_311))
            + pl::sqrt(pl::fma(v_319, v_319, v_326 * v_326)) + pl::sqrt(pl::fma(v_335, v_335, v_342 * v_342)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_66 = xs_11[1];
        const float v_353 = pl::fma(2.0f, x_38, x_37) + x_66 - v_246;
        const float v_357 = pl::fma(2.0f, x_63, x_54) + x_66;
        const float v_360 = v_357 - (pl::fma(2.0f, x_25, x_1) + x_37);
        const float x_67 = xs_11[2];
        const float v_366 = pl::fma(2.0f, x_41, x_40) + x_67 - v_262;
        const float v_370 = pl::fma(2.0f, x_64, x_57) + x_67;
        const float v_373 = v_370 - (pl::fma(2.0f, x_29, x_9) + x_40);
        const float x_68 = xs_11[3];
        const float v_380 = pl::fma(2.0f, x_44, x_43) + x_68 - v_279;
        const float v_384 = pl::fma(2.0f, x_65, x_60) + x_68;
        const float v_387 = v_384 - (pl::fma(2.0f, x_33, x_17) + x_43);
        ys_1[2] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_353, v_353, v_360 * v_360))
            + pl::sqrt(pl::fma(v_366, v_366, v_373 * v_373)) + pl::sqrt(pl::fma(v_380, v_380, v_387 * v_387)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_69 = x[i_203];
        const float v_399 = pl::fma(2.0f, x_47, x_46) + x_69 - v_301;
        const float v_403 = pl::fma(2.0f, x_66, x_63) + x_69;
        const float v_406 = v_403 - (pl::fma(2.0f, x_37, x_25) + x_46);
        const float x_70 = x[i_205];
        const float v_413 = pl::fma(2.0f, x_50, x_49) + x_70 - v_316;
        const float v_417 = pl::fma(2.0f, x_67, x_64) + x_70;
        const float v_420 = v_417 - (pl::fma(2.0f, x_40, x_29) + x_49);
        const float x_71 = x[i_207];
        const float v_428 = pl::fma(2.0f, x_53, x_52) + x_71 - v_332;
        const float v_432 = pl::fma(2.0f, x_68, x_65) + x_71;
        const float v_435 = v_432 - (pl::fma(2.0f, x_43, x_33) + x_52);
        ys_1[3] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_399, v_399, v_406 * v_406))
            + pl::sqrt(pl::fma(v_413, v_413, v_420 * v_420)) + pl::sqrt(pl::fma(v_428, v_428, v_435 * v_435)))
            * 0.33333334f, 1.0f), 0.45454544f);
        pl::store_many<4>(&y[i_185], &ys_1[0]);
        float xs_12[4];
        pl::load_many<4>(&xs_12[0], &x[i_216]);
        const float x_72 = xs_12[3];
        const float v_445 = pl::fma(2.0f, x_54, x_2_2) + x_72;
        const float x_73 = x[i_219];
        const float v_449 = v_445 - (pl::fma(2.0f, x_55, x_5) + x_73);
        const float x_74 = xs_12[0];
        const float v_453 = pl::fma(2.0f, x_74, x_73) + x_72;
        const float v_454 = v_453 - v_29;
        float xs_13[4];
        pl::load_many<4>(&xs_13[0], &x[i_221]);
        const float x_75 = xs_13[0];
        const float v_459 = pl::fma(2.0f, x_57, x_10) + x_75;
        const float x_76 = x[i_223];
        const float v_463 = v_459 - (pl::fma(2.0f, x_58, x_13) + x_76);
        const float x_77 = xs_12[1];
        const float v_467 = pl::fma(2.0f, x_77, x_76) + x_75;
        const float v_468 = v_467 - v_47;
        const float x_78 = xs_13[1];
        const float v_474 = pl::fma(2.0f, x_60, x_18) + x_78;
        const float x_79 = x[i_229];
        const float v_478 = v_474 - (pl::fma(2.0f, x_61, x_21) + x_79);
        const float x_80 = xs_12[2];
        const float v_482 = pl::fma(2.0f, x_80, x_79) + x_78;
        const float v_483 = v_482 - v_66;
        float ys_2[4];
        ys_2[0] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_449, v_449, v_454 * v_454))
            + pl::sqrt(pl::fma(v_463, v_463, v_468 * v_468)) + pl::sqrt(pl::fma(v_478, v_478, v_483 * v_483)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_81 = xs_13[2];
        const float v_493 = pl::fma(2.0f, x_63, x_26) + x_81;
        const float v_496 = v_493 - (pl::fma(2.0f, x_56, x_6) + x_74);
        const float v_500 = pl::fma(2.0f, x_72, x_74) + x_81;
        const float v_501 = v_500 - v_91;
        const float x_82 = xs_13[3];
        const float v_506 = pl::fma(2.0f, x_64, x_30) + x_82;
        const float v_509 = v_506 - (pl::fma(2.0f, x_59, x_14) + x_77);
        const float v_513 = pl::fma(2.0f, x_75, x_77) + x_82;
        const float v_514 = v_513 - v_109;
        float xs_14[4];
        pl::load_many<4>(&xs_14[0], &x[i_241]);
        const float x_83 = xs_14[0];
        const float v_520 = pl::fma(2.0f, x_65, x_34) + x_83;
        const float v_523 = v_520 - (pl::fma(2.0f, x_62, x_22) + x_80);
        const float v_527 = pl::fma(2.0f, x_78, x_80) + x_83;
        const float v_528 = v_527 - v_128;
        ys_2[1] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_496, v_496, v_501 * v_501))
            + pl::sqrt(pl::fma(v_509, v_509, v_514 * v_514)) + pl::sqrt(pl::fma(v_523, v_523, v_528 * v_528)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_84 = xs_14[1];
        const float v_539 = pl::fma(2.0f, x_66, x_38) + x_84 - v_445;
        const float v_543 = pl::fma(2.0f, x_81, x_72) + x_84;
        const float v_544 = v_543 - v_148;
        const float x_85 = xs_14[2];
        const float v_550 = pl::fma(2.0f, x_67, x_41) + x_85 - v_459;
        const float v_554 = pl::fma(2.0f, x_82, x_75) + x_85;
        const float v_555 = v_554 - v_163;
        const float x_86 = xs_14[3];
        const float v_562 = pl::fma(2.0f, x_68, x_44) + x_86 - v_474;
        const float v_566 = pl::fma(2.0f, x_83, x_78) + x_86;
        const float v_567 = v_566 - v_179;
        ys_2[2] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_539, v_539, v_544 * v_544))
            + pl::sqrt(pl::fma(v_550, v_550, v_555 * v_555)) + pl::sqrt(pl::fma(v_562, v_562, v_567 * v_567)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_87 = x[i_253];
        const float v_579 = pl::fma(2.0f, x_69, x_47) + x_87 - v_493;
        const float v_583 = pl::fma(2.0f, x_84, x_81) + x_87;
        const float v_584 = v_583 - v_201;
        const float x_88 = x[i_255];
        const float v_591 = pl::fma(2.0f, x_70, x_50) + x_88 - v_506;
        const float v_595 = pl::fma(2.0f, x_85, x_82) + x_88;
        const float v_596 = v_595 - v_216;
        const float x_89 = x[i_257];
        const float v_604 = pl::fma(2.0f, x_71, x_53) + x_89 - v_520;
        const float v_608 = pl::fma(2.0f, x_86, x_83) + x_89;
        const float v_609 = v_608 - v_232;
        ys_2[3] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_579, v_579, v_584 * v_584))
            + pl::sqrt(pl::fma(v_591, v_591, v_596 * v_596)) + pl::sqrt(pl::fma(v_604, v_604, v_609 * v_609)))
            * 0.33333334f, 1.0f), 0.45454544f);
        pl::store_many<4>(&y[i_235], &ys_2[0]);
        float xs_15[4];
        pl::load_many<4>(&xs_15[0], &x[i_266]);
        const float x_90 = xs_15[3];
        const float v_619 = pl::fma(2.0f, x_72, x_54) + x_90;
        const float x_91 = x[i_269];
        const float v_623 = v_619 - (pl::fma(2.0f, x_73, x_55) + x_91);
        const float x_92 = xs_15[0];
        const float v_627 = pl::fma(2.0f, x_92, x_91) + x_90;
        const float v_628 = v_627 - v_254;
        float xs_16[4];
        pl::load_many<4>(&xs_16[0], &x[i_271]);
        const float x_93 = xs_16[0];
        const float v_633 = pl::fma(2.0f, x_75, x_57) + x_93;
        const float x_94 = x[i_273];
        const float v_637 = v_633 - (pl::fma(2.0f, x_76, x_58) + x_94);
        const float x_95 = xs_15[1];
        const float v_641 = pl::fma(2.0f, x_95, x_94) + x_93;
        const float v_642 = v_641 - v_270;
        const float x_96 = xs_16[1];
        const float v_648 = pl::fma(2.0f, x_78, x_60) + x_96;
        const float x_97 = x[i_279];
        const float v_652 = v_648 - (pl::fma(2.0f, x_79, x_61) + x_97);
        const float x_98 = xs_15[2];
        const float v_656 = pl::fma(2.0f, x_98, x_97) + x_96;
        const float v_657 = v_656 - v_287;
        float ys_3[4];
        ys_3[0] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_623, v_623, v_628 * v_628))
            + pl::sqrt(pl::fma(v_637, v_637, v_642 * v_642)) + pl::sqrt(pl::fma(v_652, v_652, v_657 * v_657)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_99 = xs_16[2];
        const float v_667 = pl::fma(2.0f, x_81, x_63) + x_99;
        const float v_670 = v_667 - (pl::fma(2.0f, x_74, x_56) + x_92);
        const float v_674 = pl::fma(2.0f, x_90, x_92) + x_99;
        const float v_675 = v_674 - v_308;
        const float x_100 = xs_16[3];
        const float v_680 = pl::fma(2.0f, x_82, x_64) + x_100;
        const float v_683 = v_680 - (pl::fma(2.0f, x_77, x_59) + x_95);
        const float v_687 = pl::fma(2.0f, x_93, x_95) + x_100;
        const float v_688 = v_687 - v_323;
        float xs_17[4];
        pl::load_many<4>(&xs_17[0], &x[i_290]);
        const float x_101 = xs_17[0];
        const float v_694 = pl::fma(2.0f, x_83, x_65) + x_101;
        const float v_697 = v_694 - (pl::fma(2.0f, x_80, x_62) + x_98);
        const float v_701 = pl::fma(2.0f, x_96, x_98) + x_101;
        const float v_702 = v_701 - v_339;
        ys_3[1] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_670, v_670, v_675 * v_675))
            + pl::sqrt(pl::fma(v_683, v_683, v_688 * v_688)) + pl::sqrt(pl::fma(v_697, v_697, v_702 * v_702)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_102 = xs_17[1];
        const float v_713 = pl::fma(2.0f, x_84, x_66) + x_102 - v_619;
        const float v_717 = pl::fma(2.0f, x_99, x_90) + x_102;
        const float v_718 = v_717 - v_357;
        const float x_103 = xs_17[2];
        const float v_724 = pl::fma(2.0f, x_85, x_67) + x_103 - v_633;
        const float v_728 = pl::fma(2.0f, x_100, x_93) + x_103;
        const float v_729 = v_728 - v_370;
        const float x_104 = xs_17[3];
        const float v_736 = pl::fma(2.0f, x_86, x_68) + x_104 - v_648;
        const float v_740 = pl::fma(2.0f, x_101, x_96) + x_104;
        const float v_741 = v_740 - v_384;
        ys_3[2] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_713, v_713, v_718 * v_718))
            + pl::sqrt(pl::fma(v_724, v_724, v_729 * v_729)) + pl::sqrt(pl::fma(v_736, v_736, v_741 * v_741)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_105 = x[i_302];
        const float v_753 = pl::fma(2.0f, x_87, x_69) + x_105 - v_667;
        const float v_757 = pl::fma(2.0f, x_102, x_99) + x_105;
        const float v_758 = v_757 - v_403;
        const float x_106 = x[i_304];
        const float v_765 = pl::fma(2.0f, x_88, x_70) + x_106 - v_680;
        const float v_769 = pl::fma(2.0f, x_103, x_100) + x_106;
        const float v_770 = v_769 - v_417;
        const float x_107 = x[i_306];
        const float v_778 = pl::fma(2.0f, x_89, x_71) + x_107 - v_694;
        const float v_782 = pl::fma(2.0f, x_104, x_101) + x_107;
        const float v_783 = v_782 - v_432;
        ys_3[3] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_753, v_753, v_758 * v_758))
            + pl::sqrt(pl::fma(v_765, v_765, v_770 * v_770)) + pl::sqrt(pl::fma(v_778, v_778, v_783 * v_783)))
            * 0.33333334f, 1.0f), 0.45454544f);
        pl::store_many<4>(&y[i_284], &ys_3[0]);
        float xs_18[4];
        pl::load_many<4>(&xs_18[0], &x[i_315]);
        const float x_108 = xs_18[3];
        const float v_793 = pl::fma(2.0f, x_90, x_72) + x_108;
        const float x_109 = x[i_318];
        const float v_797 = v_793 - (pl::fma(2.0f, x_91, x_73) + x_109);
        const float x_110 = xs_18[0];
        const float v_801 = pl::fma(2.0f, x_110, x_109) + x_108;
        const float v_802 = v_801 - v_453;
        float xs_19[4];
        pl::load_many<4>(&xs_19[0], &x[i_320]);
        const float x_111 = xs_19[0];
        const float v_807 = pl::fma(2.0f, x_93, x_75) + x_111;
        const float x_112 = x[i_322];
        const float v_811 = v_807 - (pl::fma(2.0f, x_94, x_76) + x_112);
        const float x_113 = xs_18[1];
        const float v_815 = pl::fma(2.0f, x_113, x_112) + x_111;
        const float v_816 = v_815 - v_467;
        const float x_114 = xs_19[1];
        const float v_822 = pl::fma(2.0f, x_96, x_78) + x_114;
        const float x_115 = x[i_328];
        const float v_826 = v_822 - (pl::fma(2.0f, x_97, x_79) + x_115);
        const float x_116 = xs_18[2];
        const float v_830 = pl::fma(2.0f, x_116, x_115) + x_114;
        const float v_831 = v_830 - v_482;
        float ys_4[4];
        ys_4[0] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_797, v_797, v_802 * v_802))
            + pl::sqrt(pl::fma(v_811, v_811, v_816 * v_816)) + pl::sqrt(pl::fma(v_826, v_826, v_831 * v_831)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_117 = xs_19[2];
        const float v_841 = pl::fma(2.0f, x_99, x_81) + x_117;
        const float v_844 = v_841 - (pl::fma(2.0f, x_92, x_74) + x_110);
        const float v_848 = pl::fma(2.0f, x_108, x_110) + x_117;
        const float v_849 = v_848 - v_500;
        const float x_118 = xs_19[3];
        const float v_854 = pl::fma(2.0f, x_100, x_82) + x_118;
        const float v_857 = v_854 - (pl::fma(2.0f, x_95, x_77) + x_113);
        const float v_861 = pl::fma(2.0f, x_111, x_113) + x_118;
        const float v_862 = v_861 - v_513;
        float xs_20[4];
        pl::load_many<4>(&xs_20[0], &x[i_340]);
        const float x_119 = xs_20[0];
        const float v_868 = pl::fma(2.0f, x_101, x_83) + x_119;
        const float v_871 = v_868 - (pl::fma(2.0f, x_98, x_80) + x_116);
        const float v_875 = pl::fma(2.0f, x_114, x_116) + x_119;
        const float v_876 = v_875 - v_527;
        ys_4[1] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_844, v_844, v_849 * v_849))
            + pl::sqrt(pl::fma(v_857, v_857, v_862 * v_862)) + pl::sqrt(pl::fma(v_871, v_871, v_876 * v_876)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_120 = xs_20[1];
        const float v_887 = pl::fma(2.0f, x_102, x_84) + x_120 - v_793;
        const float v_891 = pl::fma(2.0f, x_117, x_108) + x_120;
        const float v_892 = v_891 - v_543;
        const float x_121 = xs_20[2];
        const float v_898 = pl::fma(2.0f, x_103, x_85) + x_121 - v_807;
        const float v_902 = pl::fma(2.0f, x_118, x_111) + x_121;
        const float v_903 = v_902 - v_554;
        const float x_122 = xs_20[3];
        const float v_910 = pl::fma(2.0f, x_104, x_86) + x_122 - v_822;
        const float v_914 = pl::fma(2.0f, x_119, x_114) + x_122;
        const float v_915 = v_914 - v_566;
        ys_4[2] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_887, v_887, v_892 * v_892))
            + pl::sqrt(pl::fma(v_898, v_898, v_903 * v_903)) + pl::sqrt(pl::fma(v_910, v_910, v_915 * v_915)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_123 = x[i_352];
        const float v_927 = pl::fma(2.0f, x_105, x_87) + x_123 - v_841;
        const float v_931 = pl::fma(2.0f, x_120, x_117) + x_123;
        const float v_932 = v_931 - v_583;
        const float x_124 = x[i_354];
        const float v_939 = pl::fma(2.0f, x_106, x_88) + x_124 - v_854;
        const float v_943 = pl::fma(2.0f, x_121, x_118) + x_124;
        const float v_944 = v_943 - v_595;
        const float x_125 = x[i_356];
        const float v_952 = pl::fma(2.0f, x_107, x_89) + x_125 - v_868;
        const float v_956 = pl::fma(2.0f, x_122, x_119) + x_125;
        const float v_957 = v_956 - v_608;
        ys_4[3] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_927, v_927, v_932 * v_932))
            + pl::sqrt(pl::fma(v_939, v_939, v_944 * v_944)) + pl::sqrt(pl::fma(v_952, v_952, v_957 * v_957)))
            * 0.33333334f, 1.0f), 0.45454544f);
        pl::store_many<4>(&y[i_334], &ys_4[0]);
        float xs_21[4];
        pl::load_many<4>(&xs_21[0], &x[i_365]);
        const float x_126 = xs_21[3];
        const float v_967 = pl::fma(2.0f, x_108, x_90) + x_126;
        const float x_127 = x[i_368];
        const float v_971 = v_967 - (pl::fma(2.0f, x_109, x_91) + x_127);
        const float x_128 = xs_21[0];
        const float v_975 = pl::fma(2.0f, x_128, x_127) + x_126;
        const float v_976 = v_975 - v_627;
        float xs_22[4];
        pl::load_many<4>(&xs_22[0], &x[i_370]);
        const float x_129 = xs_22[0];
        const float v_981 = pl::fma(2.0f, x_111, x_93) + x_129;
        const float x_130 = x[i_372];
        const float v_985 = v_981 - (pl::fma(2.0f, x_112, x_94) + x_130);
        const float x_131 = xs_21[1];
        const float v_989 = pl::fma(2.0f, x_131, x_130) + x_129;
        const float v_990 = v_989 - v_641;
        const float x_132 = xs_22[1];
        const float v_996 = pl::fma(2.0f, x_114, x_96) + x_132;
        const float x_133 = x[i_378];
        const float v_1000 = v_996 - (pl::fma(2.0f, x_115, x_97) + x_133);
        const float x_134 = xs_21[2];
        const float v_1004 = pl::fma(2.0f, x_134, x_133) + x_132;
        const float v_1005 = v_1004 - v_656;
        float ys_5[4];
        ys_5[0] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1000, v_1000, v_1005 * v_1005))
            + (pl::sqrt(pl::fma(v_971, v_971, v_976 * v_976)) + pl::sqrt(pl::fma(v_985, v_985, v_990 * v_990))))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_135 = xs_22[2];
        const float v_1015 = pl::fma(2.0f, x_117, x_99) + x_135;
        const float v_1018 = v_1015 - (pl::fma(2.0f, x_110, x_92) + x_128);
        const float v_1022 = pl::fma(2.0f, x_126, x_128) + x_135;
        const float v_1023 = v_1022 - v_674;
        const float x_136 = xs_22[3];
        const float v_1028 = pl::fma(2.0f, x_118, x_100) + x_136;
        const float v_1031 = v_1028 - (pl::fma(2.0f, x_113, x_95) + x_131);
        const float v_1035 = pl::fma(2.0f, x_129, x_131) + x_136;
        const float v_1036 = v_1035 - v_687;
        float xs_23[4];
        pl::load_many<4>(&xs_23[0], &x[i_390]);
        const float x_137 = xs_23[0];
        const float v_1042 = pl::fma(2.0f, x_119, x_101) + x_137;
        const float v_1045 = v_1042 - (pl::fma(2.0f, x_116, x_98) + x_134);
        const float v_1049 = pl::fma(2.0f, x_132, x_134) + x_137;
        const float v_1050 = v_1049 - v_701;
        ys_5[1] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1018, v_1018, v_1023 * v_1023))
            + pl::sqrt(pl::fma(v_1031, v_1031, v_1036 * v_1036)) + pl::sqrt(pl::fma(v_1045, v_1045, v_1050 * v_1050)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_138 = xs_23[1];
        const float v_1061 = pl::fma(2.0f, x_120, x_102) + x_138 - v_967;
        const float v_1065 = pl::fma(2.0f, x_135, x_126) + x_138;
        const float v_1066 = v_1065 - v_717;
        const float x_139 = xs_23[2];
        const float v_1072 = pl::fma(2.0f, x_121, x_103) + x_139 - v_981;
        const float v_1076 = pl::fma(2.0f, x_136, x_129) + x_139;
        const float v_1077 = v_1076 - v_728;
        const float x_140 = xs_23[3];
        const float v_1084 = pl::fma(2.0f, x_122, x_104) + x_140 - v_996;
        const float v_1088 = pl::fma(2.0f, x_137, x_132) + x_140;
        const float v_1089 = v_1088 - v_740;
        ys_5[2] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1061, v_1061, v_1066 * v_1066))
            + pl::sqrt(pl::fma(v_1072, v_1072, v_1077 * v_1077)) + pl::sqrt(pl::fma(v_1084, v_1084, v_1089 * v_1089)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_141 = x[i_402];
        const float v_1101 = pl::fma(2.0f, x_123, x_105) + x_141 - v_1015;
        const float v_1105 = pl::fma(2.0f, x_138, x_135) + x_141;
        const float v_1106 = v_1105 - v_757;
        const float x_142 = x[i_404];
        const float v_1113 = pl::fma(2.0f, x_124, x_106) + x_142 - v_1028;
        const float v_1117 = pl::fma(2.0f, x_139, x_136) + x_142;
        const float v_1118 = v_1117 - v_769;
        const float x_143 = x[i_406];
        const float v_1126 = pl::fma(2.0f, x_125, x_107) + x_143 - v_1042;
        const float v_1130 = pl::fma(2.0f, x_140, x_137) + x_143;
        const float v_1131 = v_1130 - v_782;
        ys_5[3] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1101, v_1101, v_1106 * v_1106))
            + pl::sqrt(pl::fma(v_1113, v_1113, v_1118 * v_1118)) + pl::sqrt(pl::fma(v_1126, v_1126, v_1131 * v_1131)))
            * 0.33333334f, 1.0f), 0.45454544f);
        pl::store_many<4>(&y[i_384], &ys_5[0]);
        float xs_24[4];
        pl::load_many<4>(&xs_24[0], &x[i_415]);
        const float x_144 = xs_24[3];
        const float v_1141 = pl::fma(2.0f, x_126, x_108) + x_144;
        const float x_145 = x[i_418];
        const float v_1145 = v_1141 - (pl::fma(2.0f, x_127, x_109) + x_145);
        const float x_146 = xs_24[0];
        const float v_1150 = pl::fma(2.0f, x_146, x_145) + x_144 - v_801;
        float xs_25[4];
        pl::load_many<4>(&xs_25[0], &x[i_420]);
        const float x_147 = xs_25[0];
        const float v_1155 = pl::fma(2.0f, x_129, x_111) + x_147;
        const float x_148 = x[i_422];
        const float v_1159 = v_1155 - (pl::fma(2.0f, x_130, x_112) + x_148);
        const float x_149 = xs_24[1];
        const float v_1164 = pl::fma(2.0f, x_149, x_148) + x_147 - v_815;
        const float x_150 = xs_25[1];
        const float v_1170 = pl::fma(2.0f, x_132, x_114) + x_150;
        const float x_151 = x[i_428];
        const float v_1174 = v_1170 - (pl::fma(2.0f, x_133, x_115) + x_151);
        const float x_152 = xs_24[2];
        const float v_1179 = pl::fma(2.0f, x_152, x_151) + x_150 - v_830;
        float ys_6[4];
        ys_6[0] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1145, v_1145, v_1150 * v_1150))
            + pl::sqrt(pl::fma(v_1159, v_1159, v_1164 * v_1164)) + pl::sqrt(pl::fma(v_1174, v_1174, v_1179 * v_1179)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_153 = xs_25[2];
        const float v_1189 = pl::fma(2.0f, x_135, x_117) + x_153;
        const float v_1192 = v_1189 - (pl::fma(2.0f, x_128, x_110) + x_146);
        const float v_1197 = pl::fma(2.0f, x_144, x_146) + x_153 - v_848;
        const float x_154 = xs_25[3];
        const float v_1202 = pl::fma(2.0f, x_136, x_118) + x_154;
        const float v_1205 = v_1202 - (pl::fma(2.0f, x_131, x_113) + x_149);
        const float v_1210 = pl::fma(2.0f, x_147, x_149) + x_154 - v_861;
        float xs_26[4];
        pl::load_many<4>(&xs_26[0], &x[i_439]);
        const float x_155 = xs_26[0];
        const float v_1216 = pl::fma(2.0f, x_137, x_119) + x_155;
        const float v_1219 = v_1216 - (pl::fma(2.0f, x_134, x_116) + x_152);
        const float v_1224 = pl::fma(2.0f, x_150, x_152) + x_155 - v_875;
        ys_6[1] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1192, v_1192, v_1197 * v_1197))
            + pl::sqrt(pl::fma(v_1205, v_1205, v_1210 * v_1210)) + pl::sqrt(pl::fma(v_1219, v_1219, v_1224 * v_1224)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_156 = xs_26[1];
        const float v_1235 = pl::fma(2.0f, x_138, x_120) + x_156 - v_1141;
        const float v_1240 = pl::fma(2.0f, x_153, x_144) + x_156 - v_891;
        const float x_157 = xs_26[2];
        const float v_1246 = pl::fma(2.0f, x_139, x_121) + x_157 - v_1155;
        const float v_1251 = pl::fma(2.0f, x_154, x_147) + x_157 - v_902;
        const float x_158 = xs_26[3];
        const float v_1258 = pl::fma(2.0f, x_140, x_122) + x_158 - v_1170;
        const float v_1263 = pl::fma(2.0f, x_155, x_150) + x_158 - v_914;
        ys_6[2] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1235, v_1235, v_1240 * v_1240))
            + pl::sqrt(pl::fma(v_1246, v_1246, v_1251 * v_1251)) + pl::sqrt(pl::fma(v_1258, v_1258, v_1263 * v_1263)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_159 = x[i_451];
        const float v_1275 = pl::fma(2.0f, x_141, x_123) + x_159 - v_1189;
        const float v_1280 = pl::fma(2.0f, x_156, x_153) + x_159 - v_931;
        const float x_160 = x[i_453];
        const float v_1287 = pl::fma(2.0f, x_142, x_124) + x_160 - v_1202;
        const float v_1292 = pl::fma(2.0f, x_157, x_154) + x_160 - v_943;
        const float x_161 = x[i_455];
        const float v_1300 = pl::fma(2.0f, x_143, x_125) + x_161 - v_1216;
        const float v_1305 = pl::fma(2.0f, x_158, x_155) + x_161 - v_956;
        ys_6[3] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1275, v_1275, v_1280 * v_1280))
            + pl::sqrt(pl::fma(v_1287, v_1287, v_1292 * v_1292)) + pl::sqrt(pl::fma(v_1300, v_1300, v_1305 * v_1305)))
            * 0.33333334f, 1.0f), 0.45454544f);
        pl::store_many<4>(&y[i_433], &ys_6[0]);
        float xs_27[4];
        pl::load_many<4>(&xs_27[0], &x[i_462]);
        const float x_162 = xs_27[3];
        const float v_1318 = pl::fma(2.0f, x_144, x_126) + x_162;
        const float x_163 = x[i_465];
        const float v_1322 = v_1318 - (pl::fma(2.0f, x_145, x_127) + x_163);
        const float x_164 = xs_27[0];
        const float v_1327 = pl::fma(2.0f, x_164, x_163) + x_162 - v_975;
        float xs_28[4];
        pl::load_many<4>(&xs_28[0], &x[i_467]);
        const float x_165 = xs_28[0];
        const float v_1332 = pl::fma(2.0f, x_147, x_129) + x_165;
        const float x_166 = x[i_469];
        const float v_1336 = v_1332 - (pl::fma(2.0f, x_148, x_130) + x_166);
        const float x_167 = xs_27[1];
        const float v_1341 = pl::fma(2.0f, x_167, x_166) + x_165 - v_989;
        const float x_168 = xs_28[1];
        const float v_1347 = pl::fma(2.0f, x_150, x_132) + x_168;
        const float x_169 = x[i_475];
        const float v_1351 = v_1347 - (pl::fma(2.0f, x_151, x_133) + x_169);
        const float x_170 = xs_27[2];
        const float v_1356 = pl::fma(2.0f, x_170, x_169) + x_168 - v_1004;
        float ys_7[4];
        ys_7[0] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1322, v_1322, v_1327 * v_1327))
            + pl::sqrt(pl::fma(v_1336, v_1336, v_1341 * v_1341)) + pl::sqrt(pl::fma(v_1351, v_1351, v_1356 * v_1356)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_171 = xs_28[2];
        const float v_1366 = pl::fma(2.0f, x_153, x_135) + x_171;
        const float v_1369 = v_1366 - (pl::fma(2.0f, x_146, x_128) + x_164);
        const float v_1374 = pl::fma(2.0f, x_162, x_164) + x_171 - v_1022;
        const float x_172 = xs_28[3];
        const float v_1379 = pl::fma(2.0f, x_154, x_136) + x_172;
        const float v_1382 = v_1379 - (pl::fma(2.0f, x_149, x_131) + x_167);
        const float v_1387 = pl::fma(2.0f, x_165, x_167) + x_172 - v_1035;
        float xs_29[4];
        pl::load_many<4>(&xs_29[0], &x[i_487]);
        const float x_173 = xs_29[0];
        const float v_1393 = pl::fma(2.0f, x_155, x_137) + x_173;
        const float v_1396 = v_1393 - (pl::fma(2.0f, x_152, x_134) + x_170);
        const float v_1401 = pl::fma(2.0f, x_168, x_170) + x_173 - v_1049;
        ys_7[1] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1369, v_1369, v_1374 * v_1374))
            + pl::sqrt(pl::fma(v_1382, v_1382, v_1387 * v_1387)) + pl::sqrt(pl::fma(v_1396, v_1396, v_1401 * v_1401)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_174 = xs_29[1];
        const float v_1412 = pl::fma(2.0f, x_156, x_138) + x_174 - v_1318;
        const float v_1417 = pl::fma(2.0f, x_171, x_162) + x_174 - v_1065;
        const float x_175 = xs_29[2];
        const float v_1423 = pl::fma(2.0f, x_157, x_139) + x_175 - v_1332;
        const float v_1428 = pl::fma(2.0f, x_172, x_165) + x_175 - v_1076;
        const float x_176 = xs_29[3];
        const float v_1435 = pl::fma(2.0f, x_158, x_140) + x_176 - v_1347;
        const float v_1440 = pl::fma(2.0f, x_173, x_168) + x_176 - v_1088;
        ys_7[2] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1412, v_1412, v_1417 * v_1417))
            + pl::sqrt(pl::fma(v_1423, v_1423, v_1428 * v_1428)) + pl::sqrt(pl::fma(v_1435, v_1435, v_1440 * v_1440)))
            * 0.33333334f, 1.0f), 0.45454544f);
        const float x_177 = x[i_499];
        const float v_1452 = pl::fma(2.0f, x_159, x_141) + x_177 - v_1366;
        const float v_1457 = pl::fma(2.0f, x_174, x_171) + x_177 - v_1105;
        const float x_178 = x[i_501];
        const float v_1464 = pl::fma(2.0f, x_160, x_142) + x_178 - v_1379;
        const float v_1469 = pl::fma(2.0f, x_175, x_172) + x_178 - v_1117;
        const float x_179 = x[i_503];
        const float v_1477 = pl::fma(2.0f, x_161, x_143) + x_179 - v_1393;
        const float v_1482 = pl::fma(2.0f, x_176, x_173) + x_179 - v_1130;
        ys_7[3] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1452, v_1452, v_1457 * v_1457))
            + pl::sqrt(pl::fma(v_1464, v_1464, v_1469 * v_1469)) + pl::sqrt(pl::fma(v_1477, v_1477, v_1482 * v_1482)))
            * 0.33333334f, 1.0f), 0.45454544f);
        pl::store_many<4>(&y[i_481], &ys_7[0]);
      } else {
        for (index_t d1 = i_2; d1 < v_1496; d1++) {
          const index_t i_510 = v_14 + i_18 * pl::min(pl::max(d1 - 1, 0), i_15);
          const index_t i_513 = v_14 + d1 * i_18;
          const index_t i_517 = v_14 + i_18 * pl::min(pl::max(d1 + 1, 0), i_15);
          const index_t i_571 = W * d1 + v_80;
          for (index_t d2 = i_3; d2 < i_136; d2++) {
            const index_t i_508 = 3 * pl::min(pl::max(d2 + 1, 0), i_38);
            const index_t i_511 = i_508 + i_510;
            const float x_180 = x[i_511];
            const index_t i_514 = i_508 + i_513;
            const index_t i_518 = i_508 + i_517;
            const float x_182 = x[i_518];
            const index_t i_520 = 3 * pl::min(pl::max(d2 - 1, 0), i_38);
            const index_t i_522 = i_510 + i_520;
            const float x_183 = x[i_522];
            const index_t i_524 = i_513 + i_520;
            const index_t i_526 = i_517 + i_520;
            const float x_185 = x[i_526];
            const float v_1514 = pl::fma(2.0f, x[i_514], x_180) + x_182 - (pl::fma(2.0f, x[i_524], x_183) + x_185);
            const index_t i_527 = 3 * d2;
            const index_t i_529 = i_517 + i_527;
            const index_t i_531 = i_510 + i_527;
            const float v_1522 = pl::fma(2.0f, x[i_529], x_185) + x_182 - (pl::fma(2.0f, x[i_531], x_183) + x_180);
            const float x_188 = x[i_511 + 1];
            const float x_190 = x[i_518 + 1];
            const float x_191 = x[i_522 + 1];
            const float x_193 = x[i_526 + 1];
            const float v_1532 = pl::fma(2.0f, x[i_514 + 1], x_188) + x_190
                - (pl::fma(2.0f, x[i_524 + 1], x_191) + x_193);
            const float v_1540 = pl::fma(2.0f, x[i_529 + 1], x_193) + x_190
                - (pl::fma(2.0f, x[i_531 + 1], x_191) + x_188);
            const float x_196 = x[i_511 + 2];
            const float x_198 = x[i_518 + 2];
            const float x_199 = x[i_522 + 2];
            const float x_201 = x[i_526 + 2];
            const float v_1551 = pl::fma(2.0f, x[i_514 + 2], x_196) + x_198
                - (pl::fma(2.0f, x[i_524 + 2], x_199) + x_201);
            const float v_1559 = pl::fma(2.0f, x[i_529 + 2], x_201) + x_198
                - (pl::fma(2.0f, x[i_531 + 2], x_199) + x_196);
            y[d2 + i_571] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1514, v_1514, v_1522 * v_1522))
                + pl::sqrt(pl::fma(v_1532, v_1532, v_1540 * v_1540))
                + pl::sqrt(pl::fma(v_1551, v_1551, v_1559 * v_1559))) * 0.33333334f, 1.0f), 0.45454544f);
          }
        }
      }
    } else {
      for (index_t place = v_7; place < W; place += v_1) {
        const index_t i_574 = 3 * pl::min(pl::max(place + 1, 0), i_38);
        const index_t i_576 = i_21 + i_574;
        const index_t i_578 = i_26 + i_574;
        const index_t i_580 = i_34 + i_574;
        const index_t i_582 = 3 * pl::min(pl::max(place - 1, 0), i_38);
        const index_t i_584 = i_21 + i_582;
        const index_t i_586 = i_26 + i_582;
        const index_t i_588 = i_34 + i_582;
        const index_t i_589 = 3 * place;
        const index_t i_591 = i_34 + i_589;
        const index_t i_593 = i_21 + i_589;
        const index_t i_596 = i_576 + 1;
        const index_t i_598 = i_578 + 1;
        const index_t i_600 = i_580 + 1;
        const index_t i_603 = i_584 + 1;
        const index_t i_605 = i_586 + 1;
        const index_t i_607 = i_588 + 1;
        const index_t i_610 = i_591 + 1;
        const index_t i_612 = i_593 + 1;
        const index_t i_615 = i_576 + 2;
        const index_t i_617 = i_578 + 2;
        const index_t i_619 = i_580 + 2;
        const index_t i_622 = i_584 + 2;
        const index_t i_624 = i_586 + 2;
        const index_t i_626 = i_588 + 2;
        const index_t i_629 = i_591 + 2;
        const index_t i_631 = i_593 + 2;
        const index_t i_634 = i_633 + place;
        const index_t i_636 = i_165 + i_574;
        const index_t i_638 = i_165 + i_582;
        const index_t i_640 = i_165 + i_589;
        const index_t i_642 = i_26 + i_589;
        const index_t i_644 = i_636 + 1;
        const index_t i_646 = i_638 + 1;
        const index_t i_648 = i_640 + 1;
        const index_t i_650 = i_642 + 1;
        const index_t i_652 = i_636 + 2;
        const index_t i_654 = i_638 + 2;
        const index_t i_656 = i_640 + 2;
        const index_t i_658 = i_642 + 2;
        const index_t i_661 = i_660 + place;
        const index_t i_663 = i_215 + i_574;
        const index_t i_665 = i_215 + i_582;
        const index_t i_667 = i_215 + i_589;
        const index_t i_669 = i_663 + 1;
        const index_t i_671 = i_665 + 1;
        const index_t i_673 = i_667 + 1;
        const index_t i_675 = i_663 + 2;
        const index_t i_677 = i_665 + 2;
        const index_t i_679 = i_667 + 2;
        const index_t i_682 = i_681 + place;
        const index_t i_684 = i_265 + i_574;
        const index_t i_686 = i_265 + i_582;
        const index_t i_688 = i_265 + i_589;
        const index_t i_690 = i_684 + 1;
        const index_t i_692 = i_686 + 1;
        const index_t i_694 = i_688 + 1;
        const index_t i_696 = i_684 + 2;
        const index_t i_698 = i_686 + 2;
        const index_t i_700 = i_688 + 2;
        const index_t i_703 = i_702 + place;
        const index_t i_705 = i_314 + i_574;
        const index_t i_707 = i_314 + i_582;
        const index_t i_709 = i_314 + i_589;
        const index_t i_711 = i_705 + 1;
        const index_t i_713 = i_707 + 1;
        const index_t i_715 = i_709 + 1;
        const index_t i_717 = i_705 + 2;
        const index_t i_719 = i_707 + 2;
        const index_t i_721 = i_709 + 2;
        const index_t i_724 = i_723 + place;
        const index_t i_726 = i_364 + i_574;
        const index_t i_728 = i_364 + i_582;
        const index_t i_730 = i_364 + i_589;
        const index_t i_732 = i_726 + 1;
        const index_t i_734 = i_728 + 1;
        const index_t i_736 = i_730 + 1;
        const index_t i_738 = i_726 + 2;
        const index_t i_740 = i_728 + 2;
        const index_t i_742 = i_730 + 2;
        const index_t i_745 = i_744 + place;
        const index_t i_747 = i_414 + i_574;
        const index_t i_749 = i_414 + i_582;
        const index_t i_751 = i_414 + i_589;
        const index_t i_753 = i_747 + 1;
        const index_t i_755 = i_749 + 1;
        const index_t i_757 = i_751 + 1;
        const index_t i_759 = i_747 + 2;
        const index_t i_761 = i_749 + 2;
        const index_t i_763 = i_751 + 2;
        const index_t i_766 = i_765 + place;
        const index_t i_768 = i_461 + i_574;
        const index_t i_770 = i_461 + i_582;
        const index_t i_772 = i_461 + i_589;
        const index_t i_774 = i_768 + 1;
        const index_t i_776 = i_770 + 1;
        const index_t i_778 = i_772 + 1;
        const index_t i_780 = i_768 + 2;
        const index_t i_782 = i_770 + 2;
        const index_t i_784 = i_772 + 2;
        const index_t i_787 = i_786 + place;
        const index_t i_790 = i_574 + v_14;
        const index_t i_798 = i_582 + v_14;
        const index_t i_805 = i_589 + v_14;
        const index_t i_842 = place + v_80;
        if (v_1495) {
          const float x_204 = x[i_576];
          const float x_205 = x[i_578];
          const float x_206 = x[i_580];
          const float x_207 = x[i_584];
          const float x_208 = x[i_586];
          const float x_209 = x[i_588];
          const float v_1579 = pl::fma(2.0f, x_205, x_204) + x_206 - (pl::fma(2.0f, x_208, x_207) + x_209);
          const float v_1583 = pl::fma(2.0f, x[i_591], x_209) + x_206;
          const float v_1587 = v_1583 - (pl::fma(2.0f, x[i_593], x_207) + x_204);
          const float x_212 = x[i_596];
          const float x_213 = x[i_598];
          const float x_214 = x[i_600];
          const float x_215 = x[i_603];
          const float x_216 = x[i_605];
          const float x_217 = x[i_607];
          const float v_1597 = pl::fma(2.0f, x_213, x_212) + x_214 - (pl::fma(2.0f, x_216, x_215) + x_217);
          const float v_1601 = pl::fma(2.0f, x[i_610], x_217) + x_214;
          const float v_1605 = v_1601 - (pl::fma(2.0f, x[i_612], x_215) + x_212);
          const float x_220 = x[i_615];
          const float x_221 = x[i_617];
          const float x_222 = x[i_619];
          const float x_223 = x[i_622];
          const float x_224 = x[i_624];
          const float x_225 = x[i_626];
          const float v_1616 = pl::fma(2.0f, x_221, x_220) + x_222 - (pl::fma(2.0f, x_224, x_223) + x_225);
          const float v_1620 = pl::fma(2.0f, x[i_629], x_225) + x_222;
          const float v_1624 = v_1620 - (pl::fma(2.0f, x[i_631], x_223) + x_220);
          y[i_634] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1579, v_1579, v_1587 * v_1587))
              + pl::sqrt(pl::fma(v_1597, v_1597, v_1605 * v_1605))
              + pl::sqrt(pl::fma(v_1616, v_1616, v_1624 * v_1624))) * 0.33333334f, 1.0f), 0.45454544f);
          const float x_228 = x[i_636];
          const float x_229 = x[i_638];
          const float v_1639 = pl::fma(2.0f, x_206, x_205) + x_228 - (pl::fma(2.0f, x_209, x_208) + x_229);
          const float v_1643 = pl::fma(2.0f, x[i_640], x_229) + x_228;
          const float v_1647 = v_1643 - (pl::fma(2.0f, x[i_642], x_208) + x_205);
          const float x_232 = x[i_644];
          const float x_233 = x[i_646];
          const float v_1657 = pl::fma(2.0f, x_214, x_213) + x_232 - (pl::fma(2.0f, x_217, x_216) + x_233);
          const float v_1661 = pl::fma(2.0f, x[i_648], x_233) + x_232;
          const float v_1665 = v_1661 - (pl::fma(2.0f, x[i_650], x_216) + x_213);
          const float x_236 = x[i_652];
          const float x_237 = x[i_654];
          const float v_1676 = pl::fma(2.0f, x_222, x_221) + x_236 - (pl::fma(2.0f, x_225, x_224) + x_237);
          const float v_1680 = pl::fma(2.0f, x[i_656], x_237) + x_236;
          const float v_1684 = v_1680 - (pl::fma(2.0f, x[i_658], x_224) + x_221);
          y[i_661] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1639, v_1639, v_1647 * v_1647))
              + pl::sqrt(pl::fma(v_1657, v_1657, v_1665 * v_1665))
              + pl::sqrt(pl::fma(v_1676, v_1676, v_1684 * v_1684))) * 0.33333334f, 1.0f), 0.45454544f);
          const float x_240 = x[i_663];
          const float x_241 = x[i_665];
          const float v_1699 = pl::fma(2.0f, x_228, x_206) + x_240 - (pl::fma(2.0f, x_229, x_209) + x_241);
          const float v_1703 = pl::fma(2.0f, x[i_667], x_241) + x_240;
          const float v_1704 = v_1703 - v_1583;
          const float x_243 = x[i_669];
          const float x_244 = x[i_671];
          const float v_1714 = pl::fma(2.0f, x_232, x_214) + x_243 - (pl::fma(2.0f, x_233, x_217) + x_244);
          const float v_1718 = pl::fma(2.0f, x[i_673], x_244) + x_243;
          const float v_1719 = v_1718 - v_1601;
          const float x_246 = x[i_675];
          const float x_247 = x[i_677];
          const float v_1730 = pl::fma(2.0f, x_236, x_222) + x_246 - (pl::fma(2.0f, x_237, x_225) + x_247);
          const float v_1734 = pl::fma(2.0f, x[i_679], x_247) + x_246;
          const float v_1735 = v_1734 - v_1620;
          y[i_682] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1699, v_1699, v_1704 * v_1704))
              + pl::sqrt(pl::fma(v_1714, v_1714, v_1719 * v_1719))
              + pl::sqrt(pl::fma(v_1730, v_1730, v_1735 * v_1735))) * 0.33333334f, 1.0f), 0.45454544f);
          const float x_249 = x[i_684];
          const float x_250 = x[i_686];
          const float v_1750 = pl::fma(2.0f, x_240, x_228) + x_249 - (pl::fma(2.0f, x_241, x_229) + x_250);
          const float v_1754 = pl::fma(2.0f, x[i_688], x_250) + x_249;
          const float v_1755 = v_1754 - v_1643;
          const float x_252 = x[i_690];
          const float x_253 = x[i_692];
          const float v_1765 = pl::fma(2.0f, x_243, x_232) + x_252 - (pl::fma(2.0f, x_244, x_233) + x_253);
          const float v_1769 = pl::fma(2.0f, x[i_694], x_253) + x_252;
          const float v_1770 = v_1769 - v_1661;
          const float x_255 = x[i_696];
          const float x_256 = x[i_698];
          const float v_1781 = pl::fma(2.0f, x_246, x_236) + x_255 - (pl::fma(2.0f, x_247, x_237) + x_256);
          const float v_1785 = pl::fma(2.0f, x[i_700], x_256) + x_255;
          const float v_1786 = v_1785 - v_1680;
          y[i_703] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1750, v_1750, v_1755 * v_1755))
              + pl::sqrt(pl::fma(v_1765, v_1765, v_1770 * v_1770))
              + pl::sqrt(pl::fma(v_1781, v_1781, v_1786 * v_1786))) * 0.33333334f, 1.0f), 0.45454544f);
          const float x_258 = x[i_705];
          const float x_259 = x[i_707];
          const float v_1801 = pl::fma(2.0f, x_249, x_240) + x_258 - (pl::fma(2.0f, x_250, x_241) + x_259);
          const float v_1805 = pl::fma(2.0f, x[i_709], x_259) + x_258;
          const float v_1806 = v_1805 - v_1703;
          const float x_261 = x[i_711];
          const float x_262 = x[i_713];
          const float v_1816 = pl::fma(2.0f, x_252, x_243) + x_261 - (pl::fma(2.0f, x_253, x_244) + x_262);
          const float v_1820 = pl::fma(2.0f, x[i_715], x_262) + x_261;
          const float v_1821 = v_1820 - v_1718;
          const float x_264 = x[i_717];
          const float x_265 = x[i_719];
          const float v_1832 = pl::fma(2.0f, x_255, x_246) + x_264 - (pl::fma(2.0f, x_256, x_247) + x_265);
          const float v_1836 = pl::fma(2.0f, x[i_721], x_265) + x_264;
          const float v_1837 = v_1836 - v_1734;
          y[i_724] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1801, v_1801, v_1806 * v_1806))
              + pl::sqrt(pl::fma(v_1816, v_1816, v_1821 * v_1821))
              + pl::sqrt(pl::fma(v_1832, v_1832, v_1837 * v_1837))) * 0.33333334f, 1.0f), 0.45454544f);
          const float x_267 = x[i_726];
          const float x_268 = x[i_728];
          const float v_1852 = pl::fma(2.0f, x_258, x_249) + x_267 - (pl::fma(2.0f, x_259, x_250) + x_268);
          const float v_1856 = pl::fma(2.0f, x[i_730], x_268) + x_267;
          const float v_1857 = v_1856 - v_1754;
          const float x_270 = x[i_732];
          const float x_271 = x[i_734];
          const float v_1867 = pl::fma(2.0f, x_261, x_252) + x_270 - (pl::fma(2.0f, x_262, x_253) + x_271);
          const float v_1871 = pl::fma(2.0f, x[i_736], x_271) + x_270;
          const float v_1872 = v_1871 - v_1769;
          const float x_273 = x[i_738];
          const float x_274 = x[i_740];
          const float v_1883 = pl::fma(2.0f, x_264, x_255) + x_273 - (pl::fma(2.0f, x_265, x_256) + x_274);
          const float v_1887 = pl::fma(2.0f, x[i_742], x_274) + x_273;
          const float v_1888 = v_1887 - v_1785;
          y[i_745] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1852, v_1852, v_1857 * v_1857))
              + pl::sqrt(pl::fma(v_1867, v_1867, v_1872 * v_1872))
              + pl::sqrt(pl::fma(v_1883, v_1883, v_1888 * v_1888))) * 0.33333334f, 1.0f), 0.45454544f);
          const float x_276 = x[i_747];
          const float x_277 = x[i_749];
          const float v_1903 = pl::fma(2.0f, x_267, x_258) + x_276 - (pl::fma(2.0f, x_268, x_259) + x_277);
          const float v_1908 = pl::fma(2.0f, x[i_751], x_277) + x_276 - v_1805;
          const float x_279 = x[i_753];
          const float x_280 = x[i_755];
          const float v_1918 = pl::fma(2.0f, x_270, x_261) + x_279 - (pl::fma(2.0f, x_271, x_262) + x_280);
          const float v_1923 = pl::fma(2.0f, x[i_757], x_280) + x_279 - v_1820;
          const float x_282 = x[i_759];
          const float x_283 = x[i_761];
          const float v_1934 = pl::fma(2.0f, x_273, x_264) + x_282 - (pl::fma(2.0f, x_274, x_265) + x_283);
          const float v_1939 = pl::fma(2.0f, x[i_763], x_283) + x_282 - v_1836;
          y[i_766] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1903, v_1903, v_1908 * v_1908))
              + pl::sqrt(pl::fma(v_1918, v_1918, v_1923 * v_1923))
              + pl::sqrt(pl::fma(v_1934, v_1934, v_1939 * v_1939))) * 0.33333334f, 1.0f), 0.45454544f);
          const float x_285 = x[i_768];
          const float x_286 = x[i_770];
          const float v_1954 = pl::fma(2.0f, x_276, x_267) + x_285 - (pl::fma(2.0f, x_277, x_268) + x_286);
          const float v_1959 = pl::fma(2.0f, x[i_772], x_286) + x_285 - v_1856;
          const float x_288 = x[i_774];
          const float x_289 = x[i_776];
          const float v_1969 = pl::fma(2.0f, x_279, x_270) + x_288 - (pl::fma(2.0f, x_280, x_271) + x_289);
          const float v_1974 = pl::fma(2.0f, x[i_778], x_289) + x_288 - v_1871;
          const float x_291 = x[i_780];
          const float x_292 = x[i_782];
          const float v_1985 = pl::fma(2.0f, x_282, x_273) + x_291 - (pl::fma(2.0f, x_283, x_274) + x_292);
          const float v_1990 = pl::fma(2.0f, x[i_784], x_292) + x_291 - v_1887;
          y[i_787] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_1954, v_1954, v_1959 * v_1959))
              + pl::sqrt(pl::fma(v_1969, v_1969, v_1974 * v_1974))
              + pl::sqrt(pl::fma(v_1985, v_1985, v_1990 * v_1990))) * 0.33333334f, 1.0f), 0.45454544f);
        } else {
          for (index_t d1_1 = i_2; d1_1 < v_1496; d1_1++) {
            const index_t v_2001 = i_18 * pl::min(pl::max(d1_1 - 1, 0), i_15);
            const index_t i_791 = i_790 + v_2001;
            const float x_294 = x[i_791];
            const index_t v_2002 = d1_1 * i_18;
            const index_t i_793 = i_790 + v_2002;
            const index_t v_2007 = i_18 * pl::min(pl::max(d1_1 + 1, 0), i_15);
            const index_t i_796 = i_790 + v_2007;
            const float x_296 = x[i_796];
            const index_t i_799 = i_798 + v_2001;
            const float x_297 = x[i_799];
            const index_t i_801 = i_798 + v_2002;
            const index_t i_803 = i_798 + v_2007;
            const float x_299 = x[i_803];
            const float v_2012 = pl::fma(2.0f, x[i_793], x_294) + x_296 - (pl::fma(2.0f, x[i_801], x_297) + x_299);
            const index_t i_806 = i_805 + v_2007;
            const index_t i_808 = i_805 + v_2001;
            const float v_2020 = pl::fma(2.0f, x[i_806], x_299) + x_296 - (pl::fma(2.0f, x[i_808], x_297) + x_294);
            const float x_302 = x[i_791 + 1];
            const float x_304 = x[i_796 + 1];
            const float x_305 = x[i_799 + 1];
            const float x_307 = x[i_803 + 1];
            const float v_2030 = pl::fma(2.0f, x[i_793 + 1], x_302) + x_304
                - (pl::fma(2.0f, x[i_801 + 1], x_305) + x_307);
            const float v_2038 = pl::fma(2.0f, x[i_806 + 1], x_307) + x_304
                - (pl::fma(2.0f, x[i_808 + 1], x_305) + x_302);
            const float x_310 = x[i_791 + 2];
            const float x_312 = x[i_796 + 2];
            const float x_313 = x[i_799 + 2];
            const float x_315 = x[i_803 + 2];
            const float v_2049 = pl::fma(2.0f, x[i_793 + 2], x_310) + x_312
                - (pl::fma(2.0f, x[i_801 + 2], x_313) + x_315);
            const float v_2057 = pl::fma(2.0f, x[i_806 + 2], x_315) + x_312
                - (pl::fma(2.0f, x[i_808 + 2], x_313) + x_310);
            y[i_842 + W * d1_1] = pl::pow_small<true>(pl::min((pl::sqrt(pl::fma(v_2012, v_2012, v_2020 * v_2020))
                + pl::sqrt(pl::fma(v_2030, v_2030, v_2038 * v_2038))
                + pl::sqrt(pl::fma(v_2049, v_2049, v_2057 * v_2057))) * 0.33333334f, 1.0f), 0.45454544f);
          }
        }
      }
    }
  }
}
