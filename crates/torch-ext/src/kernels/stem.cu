// The stem: 7x7 convolution with stride 4 and padding 3 from bytes to STEM_CHANNELS, on tensor cores. Images are
// [row][column][channel]. Given at compile time, by nf_torso/stem.rs: STEM_CHANNELS (32 or 64), IMAGE_HEIGHT,
// IMAGE_WIDTH, IMAGE_CHANNELS, BAND_ROWS, BAND_BYTES, ROW, MARGIN, FIRST_TAP, ROW_TAPS, TAPS.
// A band is BAND_ROWS rows of output pixels. The bytes that it sees are in shared memory, in rows of ROW bytes: MARGIN
// zeros, the pixels, zeros. A tile is 16 output pixels. A row of the kernel is ROW_TAPS taps, a multiple of 8, with
// channel c of (ky, kx) at ky * ROW_TAPS + FIRST_TAP + kx * IMAGE_CHANNELS + c; the weights of the others are zero.
#define OUT_HEIGHT ((IMAGE_HEIGHT + 3) / 4)
#define OUT_WIDTH ((IMAGE_WIDTH + 3) / 4)
#define PIXELS (OUT_HEIGHT * OUT_WIDTH)
#define BANDS ((OUT_HEIGHT + BAND_ROWS - 1) / BAND_ROWS)
#define BAND_PIXELS (BAND_ROWS * OUT_WIDTH)
#define STEPS (TAPS / 16)             // of 16 taps, which a tensor core adds up at once
#define TAP_GROUPS ((TAPS + 63) / 64) // of 64 taps, whose gradient a thread block sums up
#define HALVES (STEM_CHANNELS / 32)
#define ROW_BYTES (IMAGE_WIDTH * IMAGE_CHANNELS)
#define COPY (ROW_BYTES % 16 == 0 ? 16 : 4)

__device__ __forceinline__ void clear_band(u8* memory) {
  for (int i = threadIdx.x; i < BAND_BYTES / 16; i += blockDim.x)
    reinterpret_cast<uint4*>(memory)[i] = make_uint4(0, 0, 0, 0);
}
__device__ __forceinline__ void copy_async(u32 to, const u8* from) {
  if (COPY == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(from));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(from));
}
// Fills in what a band sees of an image. A single band sees all rows; those around them stay as they were cleared.
__device__ __forceinline__ void load_band(u8* memory, const u8* image, int band) {
  const u32 base = (u32)__cvta_generic_to_shared(memory);
  constexpr int COPIES = ROW_BYTES / COPY;
  if (BANDS == 1) {
    for (int i = threadIdx.x; i < IMAGE_HEIGHT * COPIES; i += blockDim.x) {
      const int row = i / COPIES, column = i % COPIES;
      copy_async(base + (row + 3) * ROW + MARGIN + column * COPY, image + (size_t)i * COPY);
    }
  } else {
    for (int i = threadIdx.x; i < (4 * BAND_ROWS + 3) * COPIES; i += blockDim.x) {
      const int row = i / COPIES, column = i % COPIES, y = 4 * band * BAND_ROWS + row - 3;
      const int to = row * ROW + MARGIN + column * COPY;
      if (y >= 0 && y < IMAGE_HEIGHT)
        copy_async(base + to, image + (size_t)y * ROW_BYTES + column * COPY);
      else
        for (int j = 0; j < COPY; j += 4) *reinterpret_cast<u32*>(memory + to + j) = 0;
    }
  }
  asm volatile("cp.async.commit_group;\n" ::);
}
__device__ __forceinline__ void mma_f16(float* c, const u32* a, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_bf16(float* c, const u32* a, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Two bytes to two f16, exactly: 0x6400 | byte is 1024 + byte.
__device__ __forceinline__ u32 bytes_to_f16x2(u32 v) {
  u32 h = __byte_perm(v, 0x64646464u, 0x4140), r;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(r) : "r"(h), "r"(0x64006400u));
  return r;
}
// Where the patch of output pixel `pixel` of a band begins: tap 0.
__device__ __forceinline__ const u8* patch(const u8* band, int pixel) {
  return band + (pixel / OUT_WIDTH) * 4 * ROW + MARGIN - 3 * IMAGE_CHANNELS - FIRST_TAP +
         (pixel % OUT_WIDTH) * 4 * IMAGE_CHANNELS;
}
// Where taps 8i to 8i + 7 of a patch are.
__device__ __forceinline__ int eight_taps(int i) { return i / (ROW_TAPS / 8) * ROW + i % (ROW_TAPS / 8) * 8; }

// weights f16 [channel][TAPS], of bytes not yet divided by 255. They stay in registers if these suffice, else in
// dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256, 2)
    stem_forward(const u8* images, const int* next_place, const u16* weights, const float* bias, uint4* sum, uint4* activated,
                 u8* signs, int frames) {
  __shared__ __align__(16) u8 image[BAND_BYTES];
  __shared__ float shared_bias[STEM_CHANNELS];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
  auto load_weight = [&](int j, int k) {
    const int channel = (j / 4) * 32 + (g / 2) * 8 + (j % 4) * 2 + (g & 1);
    const u32* row = reinterpret_cast<const u32*>(weights + channel * TAPS);
    return make_uint2(row[k * 8 + t], row[k * 8 + 4 + t]);
  };
#if TAPS == 64
  uint2 B[4 * HALVES][STEPS];
#pragma unroll
  for (int j = 0; j < 4 * HALVES; j++)
#pragma unroll
    for (int k = 0; k < STEPS; k++) B[j][k] = load_weight(j, k);
  auto weight = [&](int j, int k) { return B[j][k]; };
#else
  extern __shared__ uint2 fragments[];
  for (int k = warp; k < STEPS; k += 8)
    for (int j = 0; j < 4 * HALVES; j++) fragments[(k * 4 * HALVES + j) * 32 + lane] = load_weight(j, k);
  auto weight = [&](int j, int k) { return fragments[(k * 4 * HALVES + j) * 32 + lane]; };
#endif
  if (tid < STEM_CHANNELS) shared_bias[tid] = bias[tid];
  clear_band(image);
  __syncthreads();
  for (int item = blockIdx.x; item < frames * BANDS; item += gridDim.x) {
    const int frame = item / BANDS, band = item % BANDS;
    load_band(image, images + (size_t)frame * IMAGE_HEIGHT * ROW_BYTES, band);
    asm volatile("cp.async.wait_group 0;\n" ::);
    __syncthreads();
    const int place = next_place[frame], first = band * BAND_PIXELS, pixels = min(BAND_PIXELS, PIXELS - first);
    uint4* sum_out = sum + ((size_t)frame * PIXELS + first) * 4 * HALVES;
    uint4* activated_out = place >= 0 ? activated + ((size_t)place * PIXELS + first) * 4 * HALVES : nullptr;
    u8* signs_out = signs ? signs + ((size_t)frame * PIXELS + first) * 4 * HALVES : nullptr;
    for (int tile = warp; tile * 16 < pixels; tile += 8) {
      const int p0 = min(tile * 16 + g, pixels - 1), p1 = min(tile * 16 + g + 8, pixels - 1);
      const u8 *r0 = patch(image, p0) + 2 * t, *r1 = patch(image, p1) + 2 * t;
      float acc[4 * HALVES][4];
#pragma unroll
      for (int j = 0; j < 4 * HALVES; j++) acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0.f;
#pragma unroll
      for (int k = 0; k < STEPS; k++) {
        u32 A[4];
        A[0] = bytes_to_f16x2(*reinterpret_cast<const u16*>(r0 + eight_taps(2 * k)));
        A[1] = bytes_to_f16x2(*reinterpret_cast<const u16*>(r1 + eight_taps(2 * k)));
        A[2] = bytes_to_f16x2(*reinterpret_cast<const u16*>(r0 + eight_taps(2 * k + 1)));
        A[3] = bytes_to_f16x2(*reinterpret_cast<const u16*>(r1 + eight_taps(2 * k + 1)));
#pragma unroll
        for (int j = 0; j < 4 * HALVES; j++) mma_f16(acc[j], A, weight(j, k).x, weight(j, k).y);
      }
      const float scale = 1.f / 255.f;
#pragma unroll
      for (int row = 0; row < 2; row++) {
        const int pixel = tile * 16 + g + row * 8;
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
          float v[8];
#pragma unroll
          for (int j = 0; j < 4; j++) {
            v[2 * j] = acc[half * 4 + j][row * 2] * scale + shared_bias[half * 32 + t * 8 + 2 * j];
            v[2 * j + 1] = acc[half * 4 + j][row * 2 + 1] * scale + shared_bias[half * 32 + t * 8 + 2 * j + 1];
          }
          const uint4 out = pack(v);
          if (pixel < pixels) {
            const int i = (pixel * HALVES + half) * 4 + t;
            __stcs(sum_out + i, out);
            if (signs_out) signs_out[i] = positive(out);
            if (activated_out) __stcs(activated_out + i, relu(out));
          }
        }
      }
    }
    __syncthreads();
  }
}

// out[tap][channel] += sum over pixels of patch[tap] * dx[channel], dx = through + signs * gradient of the activation.
// Tap 0, which is no pixel of the patch, holds the bias gradient. Each of TAP_GROUPS neighbouring thread blocks does
// this for 64 taps of the same images. Dynamic shared memory: two bands, or 64 * STEM_CHANNELS floats if that is more.
extern "C" __global__ void __launch_bounds__(128 * HALVES, 2)
    stem_weight_gradient(const u8* images, const uint2* through, const uint2* activated, const int* next_place,
                         const u8* signs, float* out, int frames) {
  extern __shared__ __align__(16) u8 pair[];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
  const int half = warp % HALVES, worker = warp / HALVES;
  const int group = blockIdx.x % TAP_GROUPS, items = frames * BANDS;
  const u32 stride = gridDim.x / TAP_GROUPS;
  float acc[4][4][4];
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[i][j][e] = 0.f;
  clear_band(pair);
  clear_band(pair + BAND_BYTES);
  __syncthreads();
  auto load = [&](u8* band, u32 item) {
    load_band(band, images + (size_t)(item / BANDS) * IMAGE_HEIGHT * ROW_BYTES, item % BANDS);
  };
  if (blockIdx.x / TAP_GROUPS < items) load(pair, blockIdx.x / TAP_GROUPS);
  int turn = 0;
  for (int item = blockIdx.x / TAP_GROUPS; item < items; item += stride, turn ^= 1) {
    const int frame = item / BANDS, first = item % BANDS * BAND_PIXELS;
    const int pixels = BANDS == 1 ? PIXELS : min(BAND_PIXELS, PIXELS - first);
    const int place = next_place[frame], tiles = (pixels + 15) / 16;
    const uint2* from = through + ((size_t)frame * PIXELS + first) * 8 * HALVES + half * 8 + g;
    const uint2* gradient = activated + ((size_t)(place < 0 ? 0 : place) * PIXELS + first) * 8 * HALVES + half * 8 + g;
    const u8* sign = signs + ((size_t)frame * PIXELS + first) * 4 * HALVES + half * 4 + (g >> 1);
    uint2 next_from[4], next_gradient[4];
    u32 next_signs = 0;
    auto fetch = [&](int tile) {
      next_signs = 0;
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int pixel = tile * 16 + 2 * t + (e & 1) + (e >> 1) * 8;
        next_from[e] = next_gradient[e] = make_uint2(0, 0);
        if (pixel < pixels) {
          next_from[e] = __ldcs(from + pixel * 8 * HALVES);
          if (place >= 0) {
            next_gradient[e] = __ldcs(gradient + pixel * 8 * HALVES);
            next_signs |= (u32)sign[pixel * 4 * HALVES] << (8 * e);
          }
        }
      }
    };
    fetch(worker);
    if (item + stride < items)
      load(pair + (turn ^ 1) * BAND_BYTES, item + stride);
    else
      asm volatile("cp.async.commit_group;\n" ::);
    asm volatile("cp.async.wait_group 1;\n" ::);
    __syncthreads();
    const u8* image = pair + turn * BAND_BYTES;
    for (int tile = worker; tile < tiles; tile += 4) {
      uint2 q[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const u32 b = next_signs >> (8 * e + (g & 1) * 4);
        uint2 d = next_gradient[e];
        d.x &= (b & 1 ? 0xffffu : 0u) | (b & 2 ? 0xffff0000u : 0u);
        d.y &= (b & 4 ? 0xffffu : 0u) | (b & 8 ? 0xffff0000u : 0u);
        q[e] = make_uint2(add2(next_from[e].x, d.x), add2(next_from[e].y, d.y));
      }
      u32 Bf[4][2];
      Bf[0][0] = __byte_perm(q[0].x, q[1].x, 0x5410); Bf[0][1] = __byte_perm(q[2].x, q[3].x, 0x5410);
      Bf[1][0] = __byte_perm(q[0].x, q[1].x, 0x7632); Bf[1][1] = __byte_perm(q[2].x, q[3].x, 0x7632);
      Bf[2][0] = __byte_perm(q[0].y, q[1].y, 0x5410); Bf[2][1] = __byte_perm(q[2].y, q[3].y, 0x5410);
      Bf[3][0] = __byte_perm(q[0].y, q[1].y, 0x7632); Bf[3][1] = __byte_perm(q[2].y, q[3].y, 0x7632);
      if (tile + 4 < tiles) fetch(tile + 4);
      // The patches of pixels 2t and 2t + 8, and how far it is to their neighbours': in the same row, if rows are even.
      constexpr int EVEN = 1 - OUT_WIDTH % 2;
      const int p0 = min(tile * 16 + 2 * t, pixels - 1 - EVEN), p1 = min(tile * 16 + 2 * t + 8, pixels - 1 - EVEN);
      const u8 *r0 = patch(image, p0) + g, *r1 = patch(image, p1) + g;
      auto next = [&](int p, const u8* r) {
        return EVEN ? 4 * IMAGE_CHANNELS : int(patch(image, min(p + 1, pixels - 1)) + g - r);
      };
      const int next0 = next(p0, r0), next1 = next(p1, r1);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (TAPS % 64 != 0 && group * 4 + i >= STEPS) break;
        u32 A[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const u8* r = (e >> 1 ? r1 : r0) + eight_taps((group * 4 + i) * 2 + (e & 1));
          const float lo = __uint_as_float(0x4B000000u | r[0]) - 8388608.f;
          const float hi = __uint_as_float(0x4B000000u | r[e >> 1 ? next1 : next0]) - 8388608.f;
          A[e] = __byte_perm(__float_as_uint(lo), __float_as_uint(hi), 0x7632);
        }
        if (group == 0 && i == 0 && g == 0) A[0] = A[2] = 0x3F803F80u;
#pragma unroll
        for (int j = 0; j < 4; j++) mma_bf16(acc[i][j], A, Bf[j][0], Bf[j][1]);
      }
    }
    __syncthreads();
  }
  float* sums = reinterpret_cast<float*>(pair);  // [64 taps][STEM_CHANNELS]
  for (int q = 0; q < 4; q++) {
    if (worker == q)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const int k = (i * 16 + g + (e >> 1) * 8) * STEM_CHANNELS + half * 32 + (2 * t + (e & 1)) * 4 + j;
            sums[k] = acc[i][j][e] + (q ? sums[k] : 0.f);
          }
    __syncthreads();
  }
  out += group * 64 * STEM_CHANNELS;
  for (int i = tid; i < min(64, TAPS - group * 64) * STEM_CHANNELS; i += blockDim.x) atomicAdd(out + i, sums[i]);
}
