// Scaled weight standardisation of every kernel of a torso at once, one warp per row (an output channel, or a piece of
// a plain copy to bf16). Kernels are stored [out][in][taps] and used [out][taps][in], which is channels-last. stem.cu
// says how the stem's are used.
struct Row {
  int kind;         // 0: kernel, 1: kernel of the stem, 2: copy
  int source;       // in the parameters
  int length;
  int target;       // in the 16-bit weights
  int gain;         // in the parameters
  int gradient;     // in the kernels' gradients
  int inputs;       // channels in
  int channel;
  float scale;
};

__device__ __forceinline__ int stored(const Row& row, int i) {  // where element i of the used order is stored
  const int taps = row.length / row.inputs;
  return (i % row.inputs) * taps + i / row.inputs;
}

extern "C" __global__ void __launch_bounds__(256) standardise(const float* parameters, const Row* rows, int count, u16* weights) {
  const int r = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if (r >= count) return;
  const Row row = rows[r];
  const float* w = parameters + row.source;
  u16* out = weights + row.target;
  if (row.kind == 2) {
    for (int i = lane; i < row.length; i += 32) out[i] = float_to_bf16(w[i]);
    return;
  }
  float s = 0.f;
  for (int i = lane; i < row.length; i += 32) s += w[i];
  const float mean = warp_sum(s) / row.length;
  s = 0.f;
  for (int i = lane; i < row.length; i += 32) s += (w[i] - mean) * (w[i] - mean);
  const float k = parameters[row.gain] * row.scale * rsqrtf(fmaxf(warp_sum(s), 1e-4f));
  if (row.kind == 0) {
    for (int i = lane; i < row.length; i += 32) out[i] = float_to_bf16((w[stored(row, i)] - mean) * k);
  } else {
    for (int i = lane; i < TAPS; i += 32) {
      const int ky = i / ROW_TAPS, x = i % ROW_TAPS - FIRST_TAP, kx = x / IMAGE_CHANNELS, c = x % IMAGE_CHANNELS;
      out[i] = float_to_f16(ky < 7 && x >= 0 && kx < 7 ? (w[c * 49 + ky * 7 + kx] - mean) * k : 0.f);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)
    standardise_backward(const float* parameters, const Row* rows, int count, const u16* kernels, const float* stem,
                         int stem_channels, float* gradients) {
  const int r = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if (r >= count) return;
  const Row row = rows[r];
  if (row.kind == 2) return;
  const float* w = parameters + row.source;
  auto place = [&](int i) { return row.kind == 0 ? stored(row, i) : i; };
  auto gradient = [&](int i) -> float {
    if (row.kind == 0) return bf16_to_float(kernels[row.gradient + i]);
    const int c = IMAGE_CHANNELS == 1 ? 0 : i / 49, tap = i - c * 49;
    const int used = tap / 7 * ROW_TAPS + FIRST_TAP + tap % 7 * IMAGE_CHANNELS + c;
    return stem[used * stem_channels + row.channel] * (1.f / 255.f);
  };
  float s = 0.f, sg = 0.f;
  for (int i = lane; i < row.length; i += 32) { s += w[i]; sg += gradient(i); }
  const float mean = warp_sum(s) / row.length, mean_gradient = warp_sum(sg) / row.length;
  float v = 0.f, c = 0.f;
  for (int i = lane; i < row.length; i += 32) {
    const float d = w[place(i)] - mean;
    v += d * d;
    c += gradient(i) * d;
  }
  v = warp_sum(v);
  c = warp_sum(c);
  const float inverse = rsqrtf(fmaxf(v, 1e-4f)), k = parameters[row.gain] * row.scale * inverse;
  const float along = v > 1e-4f ? c / v : 0.f;
  for (int i = lane; i < row.length; i += 32) {
    const int at = place(i);
    gradients[row.source + at] = k * (gradient(i) - mean_gradient - (w[at] - mean) * along);
  }
  if (lane == 0) gradients[row.gain] = c * inverse * row.scale;
}

// gradients[to[i]] = sums[from[i]]: the small parameters, from where their gradients were summed up.
extern "C" __global__ void scatter(const float* sums, const int* from, const int* to, int count, float* gradients) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) gradients[to[i]] = sums[from[i]];
}
