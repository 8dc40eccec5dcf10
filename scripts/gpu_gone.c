/* A GPU that disappears: loaded with LD_PRELOAD, it lets these calls of CUDA's runtime fail once the file named by
 * GPU_GONE is there. 719 is what CUDA says of a GPU that stopped working, to every call from then on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int is_gone(void) {
    const char *file = getenv("GPU_GONE");
    return file && access(file, F_OK) == 0;
}

/* None of them has more than six arguments, all of which are numbers or pointers. */
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
