// One step of an LSTM after the matrix products: from gates, biases and the state before to the state after, which goes
// to its row of the table, and to h in f16, which goes to the start of a row of the next layer's input. One thread per
// element.
struct LstmCell {
  const u16* gates;                 // [rows][4 width], f16: input, forget, cell, output
  const float *bias_ih, *bias_hh;   // [4 width]
  const float* before;              // [rows][2 width]: h then c
  const long long* places;          // [rows]: the row of the table
  float* table;                     // [..][2 width]
  u16* output;                      // [rows][stride], of which the first width
  int rows, width, stride;
};

__device__ __forceinline__ float f16_to_float(u16 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v));
  return f;
}
__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + __expf(-x)); }

extern "C" __global__ void __launch_bounds__(256) lstm_cell(const LstmCell p) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= p.rows * p.width) return;
  const int row = k / p.width, at = k % p.width;
  float gate[4];
#pragma unroll
  for (int g = 0; g < 4; g++) {
    const int place = g * p.width + at;
    gate[g] = f16_to_float(p.gates[(size_t)row * 4 * p.width + place]) + p.bias_ih[place] + p.bias_hh[place];
  }
  const float kept = sigmoid(gate[1]) * p.before[((size_t)row * 2 + 1) * p.width + at];
  const float c = kept + sigmoid(gate[0]) * tanhf(gate[2]);
  const float h = sigmoid(gate[3]) * tanhf(c);
  float* state = p.table + (size_t)p.places[row] * 2 * p.width + at;
  state[0] = h;
  state[p.width] = c;
  p.output[(size_t)row * p.stride + at] = float_to_f16(h);
}
