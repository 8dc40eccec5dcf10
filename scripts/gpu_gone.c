/* A GPU that disappears: loaded with LD_PRELOAD, it lets no kernel start any more once the file GPU_GONE is there.
 * 719 is what CUDA says after an error on the device, and from then on to every call. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

struct size { unsigned x, y, z; };
typedef int launch(const void *, struct size, struct size, void **, size_t, void *);

static int is_gone(void) {
    const char *file = getenv("GPU_GONE");
    return file && access(file, F_OK) == 0;
}

int cudaLaunchKernel(const void *kernel, struct size grid, struct size block, void **arguments, size_t shared,
                     void *stream) {
    static launch *real;
    if (!real) real = (launch *)dlsym(RTLD_NEXT, "cudaLaunchKernel");
    return is_gone() ? 719 : real(kernel, grid, block, arguments, shared, stream);
}
