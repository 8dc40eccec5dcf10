// Returns of all policies: G_t = r_t + discount_t ((1 - lambda_{t+1}) V_{t+1} + lambda_{t+1} G_{t+1}), G of the last
// step is its value. One thread per sequence and policy; [B][T][N], rewards [B][T][N] or [B][T][1].
extern "C" __global__ void returns(const float* rewards, const float* discounts, const float* values, const float* traces,
                                   float* out, int sequences, int steps, int policies, int reward_policies) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= sequences * policies) return;
  const int b = k / policies, n = k % policies;
  const size_t start = (size_t)b * steps * policies + n;
  const float* reward = rewards + (size_t)b * steps * reward_policies + (reward_policies == 1 ? 0 : n);
  size_t at = start + (size_t)(steps - 1) * policies;
  float following = values[at];
  out[at] = following;
  for (int t = steps - 2; t >= 0; t--) {
    const float v = values[at], l = traces[at];
    at -= policies;
    following = reward[(size_t)t * reward_policies] + discounts[at] * (v + l * (following - v));
    out[at] = following;
  }
}
