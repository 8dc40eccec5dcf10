/* Simulates a GPU that disappears: loaded with LD_PRELOAD, it makes these CUDA runtime calls fail once the file named by
 * GPU_GONE exists. 719 is the status that every call returns after a GPU has stopped working. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int is_gone(void) {
    const char *file = getenv("GPU_GONE");
    return file && access(file, F_OK) == 0;
}

/* They have at most six arguments, all numbers or pointers. */
typedef int call(long, long, long, long, long, long);
#define UNLESS_GONE(name)                                               \
    int name(long a, long b, long c, long d, long e, long f) {          \
        static call *real;                                              \
        if (!real) real = (call *)dlsym(RTLD_NEXT, #name);              \
        return is_gone() ? 719 : real(a, b, c, d, e, f);                \
    }

UNLESS_GONE(cudaGetLastError)
UNLESS_GONE(cudaPeekAtLastError)
UNLESS_GONE(cudaMalloc)
UNLESS_GONE(cudaMemcpyAsync)
UNLESS_GONE(cudaEventQuery)
UNLESS_GONE(cudaEventSynchronize)
UNLESS_GONE(cudaStreamSynchronize)
UNLESS_GONE(cudaDeviceSynchronize)
