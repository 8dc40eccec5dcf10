// What tch does not offer, through its raw at::Tensor pointers: streams, events, CUDA graphs, allocator statistics,
// copies that are not waited for or of many tensors at once, convolution and LSTM backward passes, and nodes of the
// autograd graph whose backward pass is a Rust function.
// Every function returns null, or a text that says what failed; it stays valid until the thread's next call.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <unistd.h>

#include <atomic>
#include <exception>
#include <string>

using at::Tensor;

static thread_local std::string last_error;

template <typename F>
static const char* attempt(F&& f) {
  try {
    f();
    return nullptr;
  } catch (const std::exception& e) {
    last_error = e.what();
  } catch (...) {
    last_error = "unknown C++ exception";
  }
  return last_error.c_str();
}

// Fills `gradients` with one owned tensor (or null) for each input; returns null or an owned text.
typedef char* (*Backward)(void* state, Tensor* gradient, Tensor** gradients, size_t inputs);
typedef void (*Drop)(void* state);
typedef void (*FreeText)(char* text);
typedef void (*End)(const char* text);

static End say_end = nullptr;

struct RustNode : torch::autograd::Node {
  void* state;
  Backward backward;
  Drop drop;
  FreeText free_text;
  size_t inputs;

  RustNode(void* state, Backward backward, Drop drop, FreeText free_text, size_t inputs)
      : state(state), backward(backward), drop(drop), free_text(free_text), inputs(inputs) {}
  ~RustNode() override { release(); }

  void release() {
    if (state) drop(state);
    state = nullptr;
  }
  void release_variables() override { release(); }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& incoming) override {
    TORCH_CHECK(state, "the backward pass of a fused piece can run only once");
    torch::autograd::variable_list result(inputs);
    if (!incoming[0].defined()) return result;
    std::vector<Tensor*> gradients(inputs, nullptr);
    Tensor gradient = incoming[0];
    char* text = backward(state, &gradient, gradients.data(), inputs);
    for (size_t i = 0; i < inputs; i++) {
      if (gradients[i]) result[i] = *gradients[i];
      delete gradients[i];
    }
    if (text) {
      std::string message(text);
      free_text(text);
      throw std::runtime_error(message);
    }
    return result;
  }
};

extern "C" {
const char* tx_attach(Tensor* output, Tensor** inputs, size_t count, void* state, Backward backward, Drop drop,
                      FreeText free_text, Tensor** attached) {
  return attempt([&] {
    std::vector<Tensor> list;
    for (size_t i = 0; i < count; i++) list.push_back(*inputs[i]);
    auto node = std::shared_ptr<RustNode>(new RustNode(state, backward, drop, free_text, count),
                                          [](RustNode* n) { torch::autograd::deleteNode(n); });
    node->set_next_edges(torch::autograd::collect_next_edges(list));
    Tensor result = output->detach();
    torch::autograd::set_history(result, node);
    *attached = new Tensor(std::move(result));
  });
}

const char* tx_convolution_backward(Tensor* gradient, Tensor* input, Tensor* weight, int64_t stride, int64_t padding,
                                    int want_input, int want_weight, Tensor** input_gradient, Tensor** weight_gradient) {
  return attempt([&] {
    auto [gx, gw, gb] = at::convolution_backward(*gradient, *input, *weight, std::nullopt, {stride, stride},
                                                 {padding, padding}, {1, 1}, false, {0, 0}, 1,
                                                 {want_input != 0, want_weight != 0, false});
    if (want_input) *input_gradient = new Tensor(gx);
    if (want_weight) *weight_gradient = new Tensor(gw);
  });
}

// One LSTM layer, [T][B][inputs]; `buffer` holds weight_ih, weight_hh, bias_ih, bias_hh one after the other.
static std::vector<Tensor> lstm_weights(const Tensor& buffer, int64_t inputs, int64_t width) {
  const int64_t a = 4 * width * inputs, b = 4 * width * width, c = 4 * width;
  return {buffer.narrow(0, 0, a).view({4 * width, inputs}), buffer.narrow(0, a, b).view({4 * width, width}),
          buffer.narrow(0, a + b, c), buffer.narrow(0, a + b + c, c)};
}
const char* tx_lstm(Tensor* input, Tensor* buffer, Tensor* h, Tensor* c, int64_t width, int train, Tensor** output,
                    Tensor** h_after, Tensor** c_after, Tensor** reserve) {
  return attempt([&] {
    at::NoGradGuard no_grad;
    auto weights = lstm_weights(*buffer, input->size(2), width);
    auto [y, hy, cy, kept, used] = at::_cudnn_rnn(*input, weights, 4, *buffer, *h, *c, 2, width, 0, 1, false, 0.0,
                                                  train != 0, false, {}, std::nullopt);
    *output = new Tensor(y);
    *h_after = new Tensor(hy);
    *c_after = new Tensor(cy);
    *reserve = new Tensor(kept);
  });
}
const char* tx_lstm_backward(Tensor* input, Tensor* buffer, Tensor* h, Tensor* c, Tensor* output, Tensor* reserve,
                             Tensor* gradient, int64_t width, Tensor** input_gradient, Tensor** weight_gradients) {
  return attempt([&] {
    at::NoGradGuard no_grad;
    auto weights = lstm_weights(*buffer, input->size(2), width);
    auto [dx, dh, dc, dw] = at::_cudnn_rnn_backward(*input, weights, 4, *buffer, *h, *c, *output, *gradient, std::nullopt,
                                                    std::nullopt, 2, width, 0, 1, false, 0.0, true, false, {},
                                                    std::nullopt, *reserve, {true, false, false, true});
    *input_gradient = new Tensor(dx);
    for (size_t i = 0; i < 4; i++) weight_gradients[i] = new Tensor(dw[i]);
  });
}

// Those of f32 that lie alike in a few launches, the others one by one.
const char* tx_copy_all(Tensor** to, Tensor** from, size_t count) {
  return attempt([&] {
    std::vector<Tensor> alike_to, alike_from;
    for (size_t i = 0; i < count; i++) {
      bool alike = to[i]->scalar_type() == at::kFloat && from[i]->scalar_type() == at::kFloat &&
                   to[i]->sizes() == from[i]->sizes() && to[i]->strides() == from[i]->strides() &&
                   to[i]->is_non_overlapping_and_dense();
      if (!alike) {
        to[i]->copy_(*from[i]);
        continue;
      }
      alike_to.push_back(*to[i]);
      alike_from.push_back(*from[i]);
    }
    if (!alike_to.empty()) at::_foreach_copy_(alike_to, alike_from);
  });
}
// Copies that the host does not wait for, by way of pinned memory, which libtorch keeps until the stream is done with
// it.
const char* tx_upload(Tensor* host, Tensor** copy) {
  return attempt([&] {
    *copy = new Tensor(host->pin_memory().to(at::Device(at::kCUDA, 0), host->scalar_type(), true));
  });
}
const char* tx_download(Tensor* tensor, Tensor** copy) {
  return attempt([&] { *copy = new Tensor(tensor->to(at::Device(at::kCPU), tensor->scalar_type(), true)); });
}

// Streams belong to libtorch's pool for the life of the process, so that its allocator may refer to them.
const char* tx_stream_new(int high_priority, void** stream) {
  return attempt([&] { *stream = new c10::cuda::CUDAStream(c10::cuda::getStreamFromPool(high_priority != 0, 0)); });
}
const char* tx_stream_current(void** stream) {
  return attempt([&] { *stream = new c10::cuda::CUDAStream(c10::cuda::getCurrentCUDAStream(0)); });
}
const char* tx_stream_set(void* stream) {
  return attempt([&] { c10::cuda::setCurrentCUDAStream(*(c10::cuda::CUDAStream*)stream); });
}
const char* tx_stream_synchronize(void* stream) {
  return attempt([&] { ((c10::cuda::CUDAStream*)stream)->synchronize(); });
}
const char* tx_stream_raw(void* stream, void** raw) {
  return attempt([&] { *raw = (void*)((c10::cuda::CUDAStream*)stream)->stream(); });
}
const char* tx_stream_uses(void* stream, Tensor* tensor) {
  return attempt([&] { tensor->record_stream(((c10::cuda::CUDAStream*)stream)->unwrap()); });
}
void tx_stream_free(void* stream) { delete (c10::cuda::CUDAStream*)stream; }

const char* tx_event_new(int timing, void** event) {
  return attempt([&] {
    *event = new c10::Event(c10::DeviceType::CUDA,
                            timing ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT);
  });
}
const char* tx_event_record(void* event, void* stream) {
  return attempt([&] { ((c10::Event*)event)->record(((c10::cuda::CUDAStream*)stream)->unwrap()); });
}
const char* tx_event_block(void* event, void* stream) {
  return attempt([&] { ((c10::Event*)event)->block(((c10::cuda::CUDAStream*)stream)->unwrap()); });
}
const char* tx_event_synchronize(void* event) {
  return attempt([&] { ((c10::Event*)event)->synchronize(); });
}
const char* tx_event_done(void* event, int* done) {
  return attempt([&] { *done = ((c10::Event*)event)->query(); });
}
const char* tx_event_milliseconds(void* start, void* end, double* milliseconds) {
  return attempt([&] { *milliseconds = ((c10::Event*)start)->elapsedTime(*(c10::Event*)end); });
}
void tx_event_free(void* event) { delete (c10::Event*)event; }

const char* tx_graph_begin(void** graph) {
  return attempt([&] {
    auto g = std::make_unique<at::cuda::CUDAGraph>();
    g->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    *graph = g.release();
  });
}
const char* tx_graph_end(void* graph) {
  return attempt([&] { ((at::cuda::CUDAGraph*)graph)->capture_end(); });
}
const char* tx_graph_replay(void* graph) {
  return attempt([&] { ((at::cuda::CUDAGraph*)graph)->replay(); });
}
void tx_graph_free(void* graph) {
  attempt([&] { delete (at::cuda::CUDAGraph*)graph; });
}

// An uncatchable exception, such as one from a destructor, ends the process with a message instead of SIGABRT.
// Other threads may be anywhere, so nothing is cleaned up.
const char* tx_on_terminate(End end) {
  return attempt([&] {
    say_end = end;
    std::set_terminate([] {
      static std::atomic_flag ending = ATOMIC_FLAG_INIT;
      if (ending.test_and_set()) {
        for (;;) pause();
      }
      const char* text = "an unexpected end of libtorch";
      std::string kept;
      if (auto exception = std::current_exception()) {
        try {
          std::rethrow_exception(exception);
        } catch (const std::exception& e) {
          kept = e.what();
          text = kept.c_str();
        } catch (...) {
        }
      }
      say_end(text);
      _exit(1);
    });
  });
}

// Whether this thread's warnings are swallowed.
const char* tx_silence(int silent) {
  struct Silence : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  return attempt([&] {
    static Silence silence;
    c10::WarningUtils::set_warning_handler(silent ? &silence : nullptr);
  });
}
// f32 matrix products with 10-bit factors and f32 sums, and cuDNN's choice by trial among its algorithms.
const char* tx_prefer_speed() {
  return attempt([&] {
    at::globalContext().setFloat32MatmulPrecision("high");
    at::globalContext().setBenchmarkCuDNN(true);
  });
}
const char* tx_release_unused_memory() {
  return attempt([] { c10::cuda::CUDACachingAllocator::emptyCache(); });
}
const char* tx_memory(uint64_t* allocated, uint64_t* peak_allocated, uint64_t* reserved, uint64_t* peak_reserved) {
  return attempt([&] {
    auto s = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    *allocated = s.allocated_bytes[0].current;
    *peak_allocated = s.allocated_bytes[0].peak;
    *reserved = s.reserved_bytes[0].current;
    *peak_reserved = s.reserved_bytes[0].peak;
  });
}
}
