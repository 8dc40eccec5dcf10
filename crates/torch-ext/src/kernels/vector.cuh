// Eight bf16 values in one 16-byte word: the unit in which activations (NHWC, channels a multiple of 8) are moved.
// No CUDA header is included anywhere in these files, so that NVRTC alone can compile them.
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef unsigned long long u64;

__device__ __forceinline__ float low(u32 w) { return __uint_as_float(w << 16); }
__device__ __forceinline__ float high(u32 w) { return __uint_as_float(w & 0xffff0000u); }
__device__ __forceinline__ float bf16_to_float(u16 v) { return __uint_as_float((u32)v << 16); }

__device__ __forceinline__ void unpack(const uint4 q, float* f) {
  f[0] = low(q.x); f[1] = high(q.x); f[2] = low(q.y); f[3] = high(q.y);
  f[4] = low(q.z); f[5] = high(q.z); f[6] = low(q.w); f[7] = high(q.w);
}
__device__ __forceinline__ u32 pack2(float a, float b) {
  u32 w;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(b), "f"(a));
  return w;
}
__device__ __forceinline__ uint4 pack(const float* f) {
  return make_uint4(pack2(f[0], f[1]), pack2(f[2], f[3]), pack2(f[4], f[5]), pack2(f[6], f[7]));
}
__device__ __forceinline__ u16 float_to_bf16(float v) { return (u16)(pack2(v, 0.f) & 0xffffu); }
__device__ __forceinline__ u16 float_to_f16(float v) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
  return h;
}
// A NaN stays a NaN, so that it is seen in the loss.
__device__ __forceinline__ u32 relu2(u32 w) {
  u32 r;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(w), "r"(0u));
  return r;
}
__device__ __forceinline__ uint4 relu(uint4 q) { return make_uint4(relu2(q.x), relu2(q.y), relu2(q.z), relu2(q.w)); }
__device__ __forceinline__ u32 add2(u32 a, u32 b) {  // a * 1 + b
  u32 r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(0x3F803F80u), "r"(b));
  return r;
}
// Which of the values are above zero: where relu lets a gradient through.
__device__ __forceinline__ u32 positive2(u32 w) {
  u32 lo = w & 0xffffu, hi = w >> 16;
  return (lo - 1u < 0x7fffu ? 1u : 0u) | (hi - 1u < 0x7fffu ? 2u : 0u);
}
__device__ __forceinline__ u32 positive(const uint4 q) {
  return positive2(q.x) | (positive2(q.y) << 2) | (positive2(q.z) << 4) | (positive2(q.w) << 6);
}
__device__ __forceinline__ float warp_sum(float v) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}
// Sums of eight channels over a block whose thread i holds channel group i % (C / 8), then in `sums[C]` for all.
// `scratch` has 32 * C floats.
template <int C>
__device__ __forceinline__ void block_channel_sums(float* values, float* scratch, float* sums) {
  constexpr int V = C / 8;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, warps = blockDim.x >> 5;
#pragma unroll
  for (int j = 0; j < 8; j++)
    for (int o = V; o < 32; o <<= 1) values[j] += __shfl_xor_sync(0xffffffffu, values[j], o);
  __syncthreads();
  if (lane < V)
#pragma unroll
    for (int j = 0; j < 8; j++) scratch[warp * C + lane * 8 + j] = values[j];
  __syncthreads();
  if (tid < C) {
    float s = 0.f;
    for (int w = 0; w < warps; w++) s += scratch[w * C + tid];
    sums[tid] = s;
  }
  __syncthreads();
}
