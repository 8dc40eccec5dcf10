// The stem: 7x7 convolution with stride 4 and padding 3 from one channel of bytes to STEM_CHANNELS, on tensor cores.
// Given at compile time: STEM_CHANNELS (32 or 64), IMAGE_HEIGHT, IMAGE_WIDTH (a multiple of 16).
// An image lives in shared memory with zeros around it; a tile is 16 output pixels; the 64 taps are 8 rows of 8,
// tap (ky, kx) at ky * 8 + kx + 1, the others zero.
#define OUT_HEIGHT ((IMAGE_HEIGHT + 3) / 4)
#define OUT_WIDTH ((IMAGE_WIDTH + 3) / 4)
#define ROW (IMAGE_WIDTH + 16)                    // 16 zero bytes, then the pixels
#define IMAGE_BYTES (((OUT_HEIGHT * 4 + 4) * ROW + 16 + 15) / 16 * 16)  // rows from -3 on
#define PIXELS (OUT_HEIGHT * OUT_WIDTH)
#define TILES ((PIXELS + 15) / 16)
#define HALVES (STEM_CHANNELS / 32)

__device__ __forceinline__ void clear_image(u8* image) {
  for (int i = threadIdx.x; i < IMAGE_BYTES / 16; i += blockDim.x)
    reinterpret_cast<uint4*>(image)[i] = make_uint4(0, 0, 0, 0);
}
__device__ __forceinline__ void load_image(u8* image, const u8* source) {
  const u32 base = (u32)__cvta_generic_to_shared(image);
  for (int i = threadIdx.x; i < IMAGE_HEIGHT * (IMAGE_WIDTH / 16); i += blockDim.x) {
    const int row = i / (IMAGE_WIDTH / 16), column = i % (IMAGE_WIDTH / 16);
    const u32 to = base + (row + 3) * ROW + 16 + column * 16;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(source + (size_t)i * 16));
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
// Where the patch of output pixel `pixel` begins: tap 0 of its first row, one pixel left of kx = 0.
__device__ __forceinline__ const u8* patch(const u8* image, int pixel) {
  return image + (pixel / OUT_WIDTH) * 4 * ROW + 16 - 4 + (pixel % OUT_WIDTH) * 4;
}

// weights f16 [channel][64 taps], of bytes not yet divided by 255.
extern "C" __global__ void __launch_bounds__(256, 2)
    stem_forward(const u8* images, const int* next_place, const u16* weights, const float* bias, uint4* sum, uint4* activated,
                 u8* signs, int frames) {
  __shared__ __align__(16) u8 image[IMAGE_BYTES];
  __shared__ float shared_bias[STEM_CHANNELS];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
  u32 B[4 * HALVES][4][2];
#pragma unroll
  for (int j = 0; j < 4 * HALVES; j++) {
    const int channel = (j / 4) * 32 + (g / 2) * 8 + (j % 4) * 2 + (g & 1);
    const u32* row = reinterpret_cast<const u32*>(weights + channel * 64);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      B[j][k][0] = row[k * 8 + t];
      B[j][k][1] = row[k * 8 + 4 + t];
    }
  }
  if (tid < STEM_CHANNELS) shared_bias[tid] = bias[tid];
  clear_image(image);
  __syncthreads();
  for (int frame = blockIdx.x; frame < frames; frame += gridDim.x) {
    load_image(image, images + (size_t)frame * IMAGE_HEIGHT * IMAGE_WIDTH);
    asm volatile("cp.async.wait_group 0;\n" ::);
    __syncthreads();
    const int place = next_place[frame];
    uint4* sum_out = sum + (size_t)frame * PIXELS * 4 * HALVES;
    uint4* activated_out = place >= 0 ? activated + (size_t)place * PIXELS * 4 * HALVES : nullptr;
    u8* signs_out = signs ? signs + (size_t)frame * PIXELS * 4 * HALVES : nullptr;
    for (int tile = warp; tile < TILES; tile += 8) {
      const int p0 = min(tile * 16 + g, PIXELS - 1), p1 = min(tile * 16 + g + 8, PIXELS - 1);
      const u8 *r0 = patch(image, p0) + 2 * t, *r1 = patch(image, p1) + 2 * t;
      float acc[4 * HALVES][4];
#pragma unroll
      for (int j = 0; j < 4 * HALVES; j++) acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0.f;
#pragma unroll
      for (int k = 0; k < 4; k++) {
        u32 A[4];
        A[0] = bytes_to_f16x2(*reinterpret_cast<const u16*>(r0 + (2 * k) * ROW));
        A[1] = bytes_to_f16x2(*reinterpret_cast<const u16*>(r1 + (2 * k) * ROW));
        A[2] = bytes_to_f16x2(*reinterpret_cast<const u16*>(r0 + (2 * k + 1) * ROW));
        A[3] = bytes_to_f16x2(*reinterpret_cast<const u16*>(r1 + (2 * k + 1) * ROW));
#pragma unroll
        for (int j = 0; j < 4 * HALVES; j++) mma_f16(acc[j], A, B[j][k][0], B[j][k][1]);
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
          if (pixel < PIXELS) {
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
// Tap 0, which is no pixel of the patch, holds the bias gradient. Dynamic shared memory: two images.
extern "C" __global__ void __launch_bounds__(128 * HALVES, 2)
    stem_weight_gradient(const u8* images, const uint2* through, const uint2* activated, const int* next_place,
                         const u8* signs, float* out, int frames) {
  extern __shared__ __align__(16) u8 pair[];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
  const int half = warp % HALVES, worker = warp / HALVES;
  float acc[4][4][4];
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[i][j][e] = 0.f;
  clear_image(pair);
  clear_image(pair + IMAGE_BYTES);
  __syncthreads();
  if (blockIdx.x < frames) load_image(pair, images + (size_t)blockIdx.x * IMAGE_HEIGHT * IMAGE_WIDTH);
  int turn = 0;
  for (int frame = blockIdx.x; frame < frames; frame += gridDim.x, turn ^= 1) {
    const int place = next_place[frame];
    const uint2* from = through + (size_t)frame * PIXELS * 8 * HALVES + half * 8 + g;
    const uint2* gradient = activated + (size_t)(place < 0 ? 0 : place) * PIXELS * 8 * HALVES + half * 8 + g;
    const u8* sign = signs + (size_t)frame * PIXELS * 4 * HALVES + half * 4 + (g >> 1);
    uint2 next_from[4], next_gradient[4];
    u32 next_signs = 0;
    auto fetch = [&](int tile) {
      next_signs = 0;
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int pixel = tile * 16 + 2 * t + (e & 1) + (e >> 1) * 8;
        next_from[e] = next_gradient[e] = make_uint2(0, 0);
        if (pixel < PIXELS) {
          next_from[e] = __ldcs(from + pixel * 8 * HALVES);
          if (place >= 0) {
            next_gradient[e] = __ldcs(gradient + pixel * 8 * HALVES);
            next_signs |= (u32)sign[pixel * 4 * HALVES] << (8 * e);
          }
        }
      }
    };
    fetch(worker);
    if (frame + gridDim.x < frames)
      load_image(pair + (turn ^ 1) * IMAGE_BYTES, images + (size_t)(frame + gridDim.x) * IMAGE_HEIGHT * IMAGE_WIDTH);
    else
      asm volatile("cp.async.commit_group;\n" ::);
    asm volatile("cp.async.wait_group 1;\n" ::);
    __syncthreads();
    const u8* image = pair + turn * IMAGE_BYTES;
    for (int tile = worker; tile < TILES; tile += 4) {
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
      if (tile + 4 < TILES) fetch(tile + 4);
      // Two neighbouring output pixels share a row of the image, as the width in output pixels is even.
      const int p0 = min(tile * 16 + 2 * t, PIXELS - 2), p1 = min(tile * 16 + 2 * t + 8, PIXELS - 2);
      const u8 *r0 = patch(image, p0) + g, *r1 = patch(image, p1) + g;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        u32 A[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const u8* r = (e >> 1 ? r1 : r0) + (2 * i + (e & 1)) * ROW;
          const float lo = __uint_as_float(0x4B000000u | r[0]) - 8388608.f, hi = __uint_as_float(0x4B000000u | r[4]) - 8388608.f;
          A[e] = __byte_perm(__float_as_uint(lo), __float_as_uint(hi), 0x7632);
        }
        if (i == 0 && g == 0) A[0] = A[2] = 0x3F803F80u;
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
  for (int i = tid; i < 64 * STEM_CHANNELS; i += blockDim.x) atomicAdd(out + i, sums[i]);
}
