// AdamW over one flat buffer, and the moving average of the parameters where there is one.
// p <- keep p - rate m / (sqrt(v) / root + epsilon), then average <- average + share (p - average).
struct AdamW {
  float *parameters, *first, *second;
  const float *gradients, *keep;  // keep: null where nothing decays
  float* average;                 // or null
  const double* scale;            // of the gradient, or null for 1
  const u8* apply;                // 0: everything stays as it is
  u64 count;
  float one_minus_beta1, one_minus_beta2, rate, root, epsilon, share;
};

extern "C" __global__ void __launch_bounds__(512) adamw(const AdamW p) {
  if (!*p.apply) return;
  const float scale = p.scale ? (float)*p.scale : 1.f;
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += stride) {
    const float g = p.gradients[i] * scale;
    const float m = p.first[i] + p.one_minus_beta1 * (g - p.first[i]);
    const float v = p.second[i] + p.one_minus_beta2 * (g * g - p.second[i]);
    p.first[i] = m;
    p.second[i] = v;
    const float kept = p.parameters[i] * (p.keep ? p.keep[i] : 1.f);
    const float moved = kept - p.rate * m / (sqrtf(v) / p.root + p.epsilon);
    p.parameters[i] = moved;
    if (p.average) p.average[i] += p.share * (moved - p.average[i]);
  }
}
