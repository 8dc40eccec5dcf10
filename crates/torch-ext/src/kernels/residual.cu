// What stands between the convolutions of a normalizer-free residual block, in one pass over memory each way.
// One thread block per frame. Frames whose branch is dropped have no place (-1) in the compact tensors.

// out[r] = sum_k matrix[r][k] in[k], with bf16 weights; powers of two, blockDim.x >= R.
template <int R, int K>
__device__ __forceinline__ void multiply(const u16* matrix, const float* in, float* out) {
  int lanes = blockDim.x / R;
  if (lanes > 32) lanes = 32;
  const int r = threadIdx.x / lanes, sub = threadIdx.x % lanes;
  if (r < R) {
    float s = 0.f;
    const u32* row = reinterpret_cast<const u32*>(matrix + r * K);
    for (int c = sub; c < K / 2; c += lanes) {
      const u32 w = __ldg(row + c);
      s += low(w) * in[2 * c] + high(w) * in[2 * c + 1];
    }
    for (int o = lanes >> 1; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
    if (sub == 0) out[r] = s;
  }
}
// sum_r matrix[r][k] in[r] for k = threadIdx.x < K; `scratch` has a float for every thread.
template <int R, int K>
__device__ __forceinline__ float multiply_transposed(const u16* matrix, const float* in, float* scratch) {
  const int tid = threadIdx.x, parts = blockDim.x / K, k = tid % K, part = tid / K;
  float s = 0.f;
  for (int r = part; r < R; r += parts) s += bf16_to_float(matrix[r * K + k]) * in[r];
  scratch[tid] = s;
  __syncthreads();
  float sum = 0.f;
  if (tid < K)
    for (int q = 0; q < parts; q++) sum += scratch[q * K + tid];
  return sum;
}

struct TailForward {
  const uint4 *shortcut, *branch;       // [F][H][W][C]; [kept][H][W][C], conv2 without its bias
  const int *place, *next_place;        // of each frame in this block's and the next block's compact tensors
  const float *bias, *shortcut_bias;    // [C] of conv2, of the shortcut or null
  const u16* down;                      // bf16 [S][C]
  const float* down_bias;
  const u16* up;                        // bf16 [C][S]
  const float *up_bias, *skip_gain;
  uint4 *sum, *activated;               // x' or null, relu(x') of the frames the next block keeps
  u8* signs;                            // where x' > 0, or null when no gradient is wanted
  uint4* pooled;                        // 2x2 means of relu(x'), where the next block has stride 2
  float *record, *gate;                 // what the backward pass needs: [kept][C + S + 8], [kept][C]; or null
  int height, width;
  float activated_scale, branch_scale;
};

// x' = shortcut + s * (branch + bias), s = branch_scale * skip_gain * sigmoid(up relu(down mean(branch))).
template <int C, int S, bool POOL>
__device__ __forceinline__ void tail_forward(const TailForward& p) {
  __shared__ float scratch[32 * C];
  __shared__ float mean[C], hidden[S], factor[C];
  constexpr int V = C / 8;
  const int tid = threadIdx.x, threads = blockDim.x;
  const int pixels = p.height * p.width, words = pixels * V, frame = blockIdx.x, group = tid % V;
  const int place = p.place[frame], next_place = p.next_place[frame];
  const uint4* branch = p.branch + (size_t)(place < 0 ? 0 : place) * words;
  const uint4* shortcut = p.shortcut + (size_t)frame * words;
  float s[8], t[8];
#pragma unroll
  for (int j = 0; j < 8; j++) s[j] = t[j] = 0.f;
  if (place >= 0) {
    float sums[8];
#pragma unroll
    for (int j = 0; j < 8; j++) sums[j] = 0.f;
    for (int base = tid; base < words; base += 4 * threads) {
      uint4 q[4];
#pragma unroll
      for (int u = 0; u < 4; u++) {
        const int i = base + u * threads;
        q[u] = i < words ? branch[i] : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int u = 0; u < 4; u++) {
        float v[8];
        unpack(q[u], v);
#pragma unroll
        for (int j = 0; j < 8; j++) sums[j] += v[j];
      }
    }
    block_channel_sums<C>(sums, scratch, mean);
    if (tid < C) mean[tid] = mean[tid] / pixels + p.bias[tid];
    __syncthreads();
    multiply<S, C>(p.down, mean, scratch);
    __syncthreads();
    if (tid < S) hidden[tid] = fmaxf(scratch[tid] + p.down_bias[tid], 0.f);
    __syncthreads();
    multiply<C, S>(p.up, hidden, scratch);
    __syncthreads();
    if (tid < C) {
      const float gate = 1.f / (1.f + __expf(-(scratch[tid] + p.up_bias[tid])));
      factor[tid] = gate * p.skip_gain[0] * p.branch_scale;
      if (p.record) {
        float* record = p.record + (size_t)place * (C + S + 8);
        p.gate[(size_t)place * C + tid] = gate;
        record[tid] = mean[tid];
        if (tid < S) record[C + tid] = hidden[tid];
        if (tid < 8) record[C + S + tid] = tid == 0 ? 1.f : 0.f;
      }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 8; j++) {
      s[j] = factor[group * 8 + j];
      t[j] = s[j] * p.bias[group * 8 + j];
    }
  }
  if (p.shortcut_bias)
#pragma unroll
    for (int j = 0; j < 8; j++) t[j] += p.shortcut_bias[group * 8 + j];
  uint4* sum = p.sum ? p.sum + (size_t)frame * words : nullptr;
  uint4* activated = next_place >= 0 ? p.activated + (size_t)next_place * words : nullptr;
  u8* signs = p.signs ? p.signs + (size_t)frame * words : nullptr;
  const uint4 none = make_uint4(0, 0, 0, 0);
  if (!POOL) {
    for (int base = tid; base < words; base += 2 * threads) {
      uint4 from[2], add[2];
#pragma unroll
      for (int u = 0; u < 2; u++) {
        const int i = base + u * threads;
        from[u] = i < words ? __ldcs(shortcut + i) : none;
        add[u] = place >= 0 && i < words ? __ldcs(branch + i) : none;
      }
#pragma unroll
      for (int u = 0; u < 2; u++) {
        const int i = base + u * threads;
        if (i >= words) break;
        float v[8], h[8];
        unpack(from[u], v);
        unpack(add[u], h);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] += s[j] * h[j] + t[j];
        uint4 out = pack(v);
        if (sum) __stcs(sum + i, out);
        if (signs) signs[i] = positive(out);
        if (activated) {
          out = relu(out);
          if (p.activated_scale != 1.f) {
            unpack(out, v);
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] *= p.activated_scale;
            out = pack(v);
          }
          __stcs(activated + i, out);
        }
      }
    }
  } else {
    const int rows = (p.height + 1) / 2, columns = (p.width + 1) / 2, pooled_words = rows * columns * V;
    uint4* pooled = p.pooled + (size_t)frame * pooled_words;
    for (int k = tid; k < pooled_words; k += threads) {
      const int px = (k / V) % columns, py = (k / V) / columns;
      float mean_of[8];
#pragma unroll
      for (int j = 0; j < 8; j++) mean_of[j] = 0.f;
      int count = 0;
#pragma unroll 1
      for (int dy = 0; dy < 2; dy++) {
        const int y = 2 * py + dy;
        if (y >= p.height) break;
        const int first = (y * p.width + 2 * px) * V + group;
        const bool two = 2 * px + 1 < p.width;
        uint4 from[2] = {__ldcs(shortcut + first), two ? __ldcs(shortcut + first + V) : none};
        uint4 add[2] = {none, none};
        if (place >= 0) {
          add[0] = __ldcs(branch + first);
          if (two) add[1] = __ldcs(branch + first + V);
        }
#pragma unroll
        for (int u = 0; u < 2; u++) {
          if (u && !two) break;
          count++;
          const int i = first + u * V;
          float v[8], h[8];
          unpack(from[u], v);
          unpack(add[u], h);
#pragma unroll
          for (int j = 0; j < 8; j++) v[j] += s[j] * h[j] + t[j];
          uint4 out = pack(v);
          if (signs) signs[i] = positive(out);
          out = relu(out);
          if (activated) __stcs(activated + i, out);
          unpack(out, v);
#pragma unroll
          for (int j = 0; j < 8; j++) mean_of[j] += v[j];
        }
      }
      const float r = 1.f / count;
#pragma unroll
      for (int j = 0; j < 8; j++) mean_of[j] *= r;
      pooled[k] = pack(mean_of);
    }
  }
}

struct TailBackward {
  const uint4 *through;                 // [F][H][W][C]: gradient of x' past the next block, or null
  const uint4 *activated;               // gradient of relu(x'), compact as the next block keeps frames
  const int* next_place;
  const uint4* pooled;                  // gradient of the 2x2 means, or null
  const u8* signs;
  uint4* total;                         // gradient of x', may be `through`
  const int* place;
  const uint4* branch;
  const float *record, *gate, *bias;
  const u16 *down, *up;
  const float* skip_gain;
  uint4* branch_gradient;               // [kept][H][W][C]
  float *rows;                          // [kept][2C + S + 8], left factors of the small gradients
  float *sums;                          // [F][C]: gradient of x' summed over pixels, or null
  int height, width, cached;            // words of a frame that stay in shared memory between the passes
  float activated_scale, branch_scale;
};

// dx' = through + signs * (activated * scale + unpooled); back through gate and squeeze-excite; d(branch) = dx' s + dm.
template <int C, int S, bool POOL, bool THROUGH>
__device__ __forceinline__ void tail_backward(const TailBackward& p) {
  extern __shared__ uint4 cache[];
  __shared__ float scratch[32 * C > 1024 ? 32 * C : 1024];
  __shared__ float sum_dx[C], sum_dxh[C], du_up[C], du_down[S], factor[C], mean_gradient[C];
  constexpr int V = C / 8;
  const int tid = threadIdx.x, threads = blockDim.x, lane = tid & 31, warp = tid >> 5;
  const int pixels = p.height * p.width, words = pixels * V, frame = blockIdx.x, group = tid % V;
  const int columns = (p.width + 1) / 2, rows = (p.height + 1) / 2;
  const int place = p.place[frame], next_place = p.next_place[frame];
  const uint4* branch = p.branch + (size_t)(place < 0 ? 0 : place) * words;
  const uint4* through = p.through + (size_t)frame * words;
  const uint4* activated = p.activated + (size_t)(next_place < 0 ? 0 : next_place) * words;
  const uint4* pooled = p.pooled + (size_t)frame * rows * columns * V;
  const u8* signs = p.signs + (size_t)frame * words;
  uint4* total = p.total + (size_t)frame * words;
  float dx[8], dxh[8];
#pragma unroll
  for (int j = 0; j < 8; j++) dx[j] = dxh[j] = 0.f;
  const uint4 none = make_uint4(0, 0, 0, 0);
  constexpr int U = 2;
  for (int base = tid; base < words; base += U * threads) {
    uint4 g[U], d[U], h[U], q[U];
    u32 sign[U];
    float share[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int i = base + u * threads;
      d[u] = h[u] = none;
      if (i < words) {
        sign[u] = signs[i];
        if (THROUGH) g[u] = through[i];
        if (next_place >= 0) d[u] = __ldcs(activated + i);
        if (place >= 0) h[u] = __ldcs(branch + i);
        if (POOL) {
          const int pixel = i / V, y = pixel / p.width, x = pixel - y * p.width, py = y >> 1, px = x >> 1;
          q[u] = pooled[(py * columns + px) * V + group];
          share[u] = (2 * py + 1 < p.height ? 0.5f : 1.f) * (2 * px + 1 < p.width ? 0.5f : 1.f);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int i = base + u * threads;
      if (i >= words) break;
      float v[8], w[8];
      unpack(d[u], v);
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] *= p.activated_scale;
      if (POOL) {
        unpack(q[u], w);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] += w[j] * share[u];
      }
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] = (sign[u] >> j) & 1 ? v[j] : 0.f;
      if (THROUGH) {
        unpack(g[u], w);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] += w[j];
      }
      const uint4 out = pack(v);
      total[i] = out;
      if (i < p.cached) cache[i] = out;
      unpack(out, v);
      unpack(h[u], w);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        dx[j] += v[j];
        dxh[j] += v[j] * w[j];
      }
    }
  }
  block_channel_sums<C>(dx, scratch, sum_dx);
  if (p.sums && tid < C) p.sums[(size_t)frame * C + tid] = sum_dx[tid];
  if (place < 0) return;
  block_channel_sums<C>(dxh, scratch, sum_dxh);
  float* row = p.rows + (size_t)place * (2 * C + S + 8);
  const float scale = p.skip_gain[0] * p.branch_scale;
  if (tid < C) {
    const float ds = sum_dxh[tid] + p.bias[tid] * sum_dx[tid];
    const float gate = p.gate[(size_t)place * C + tid];
    const float du = ds * scale * gate * (1.f - gate);
    factor[tid] = scale * gate;
    du_up[tid] = du;
    row[tid] = du;
    sum_dxh[tid] = ds * gate * p.branch_scale;  // towards the skip gain's gradient
  }
  __syncthreads();
  if (warp == 0) {
    float s = 0.f;
    for (int c = lane; c < C; c += 32) s += sum_dxh[c];
    s = warp_sum(s);
    if (lane < 8) row[2 * C + S + lane] = lane == 0 ? s : 0.f;
  }
  float du = multiply_transposed<C, S>(p.up, du_up, scratch);
  if (tid < S) {
    du = p.record[(size_t)place * (C + S + 8) + C + tid] > 0.f ? du : 0.f;
    du_down[tid] = du;
    row[C + tid] = du;
  }
  __syncthreads();
  const float dm = multiply_transposed<S, C>(p.down, du_down, scratch);
  if (tid < C) {
    row[C + S + tid] = factor[tid] * sum_dx[tid] + dm;
    mean_gradient[tid] = dm / pixels;
  }
  __syncthreads();
  float s[8], m[8];
#pragma unroll
  for (int j = 0; j < 8; j++) {
    s[j] = factor[group * 8 + j];
    m[j] = mean_gradient[group * 8 + j];
  }
  uint4* out = p.branch_gradient + (size_t)place * words;
  for (int base = tid; base < words; base += 4 * threads) {
    uint4 q[4];
#pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i = base + u * threads;
      if (i < words) q[u] = i < p.cached ? cache[i] : total[i];
    }
#pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i = base + u * threads;
      if (i >= words) break;
      float v[8];
      unpack(q[u], v);
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] = v[j] * s[j] + m[j];
      __stcs(out + i, pack(v));
    }
  }
}

// gradient *= (activated > 0) in place, and its sum over everything but the channels, a part a thread block: [grid][C].
template <int C>
__device__ __forceinline__ void relu_backward(uint4* gradient, const uint4* activated, float* parts, u64 words) {
  __shared__ float scratch[32 * C];
  __shared__ float sums[C];
  const int tid = threadIdx.x;
  float acc[8];
#pragma unroll
  for (int j = 0; j < 8; j++) acc[j] = 0.f;
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 base = (u64)blockIdx.x * blockDim.x + tid; base < words; base += 4 * stride) {
    uint4 d[4], q[4];
#pragma unroll
    for (int u = 0; u < 4; u++) {
      const u64 i = base + u * stride;
      if (i < words) { d[u] = __ldcs(gradient + i); q[u] = __ldcs(activated + i); }
    }
#pragma unroll
    for (int u = 0; u < 4; u++) {
      const u64 i = base + u * stride;
      if (i >= words) break;
      const u32 sign = positive(q[u]);
      float v[8];
      unpack(d[u], v);
#pragma unroll
      for (int j = 0; j < 8; j++) { v[j] = (sign >> j) & 1 ? v[j] : 0.f; acc[j] += v[j]; }
      gradient[i] = pack(v);
    }
  }
  block_channel_sums<C>(acc, scratch, sums);
  if (tid < C) parts[(size_t)blockIdx.x * C + tid] = sums[tid];
}

// The kernels of one width: C channels, S of them squeezed.
#define RESIDUAL_KERNELS(C, S)                                                                                              \
  extern "C" __global__ void __launch_bounds__(1024, 1) tail_forward_##C(const TailForward p) { tail_forward<C, S, false>(p); } \
  extern "C" __global__ void __launch_bounds__(1024, 1) tail_forward_pool_##C(const TailForward p) { tail_forward<C, S, true>(p); } \
  extern "C" __global__ void __launch_bounds__(1024, 1) tail_backward_##C(const TailBackward p) { tail_backward<C, S, false, true>(p); } \
  extern "C" __global__ void __launch_bounds__(1024, 1) tail_backward_pool_##C(const TailBackward p) { tail_backward<C, S, true, false>(p); } \
  extern "C" __global__ void __launch_bounds__(1024, 1) tail_backward_last_##C(const TailBackward p) { tail_backward<C, S, false, false>(p); } \
  extern "C" __global__ void __launch_bounds__(512, 2) relu_backward_##C(uint4* d, const uint4* a, float* parts, u64 n) { relu_backward<C>(d, a, parts, n); }
