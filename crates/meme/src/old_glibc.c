// Functions of newer versions of glibc, so that the program also starts with glibc 2.28; build.rs makes the linker use
// them.

// Before 2.33, `stat64` and the like were linked statically and called these.
int __xstat64(int version, const char* path, void* status);
int __lxstat64(int version, const char* path, void* status);
int __fxstat64(int version, int descriptor, void* status);
int __fxstatat64(int version, int directory, const char* path, void* status, int flags);
enum { STATUS_OF_LINUX = 1 };

int __wrap_stat64(const char* path, void* status) { return __xstat64(STATUS_OF_LINUX, path, status); }
int __wrap_lstat64(const char* path, void* status) { return __lxstat64(STATUS_OF_LINUX, path, status); }
int __wrap_fstat64(int descriptor, void* status) { return __fxstat64(STATUS_OF_LINUX, descriptor, status); }
int __wrap_fstatat64(int directory, const char* path, void* status, int flags) {
  return __fxstatat64(STATUS_OF_LINUX, directory, path, status, flags);
}

// Since 2.34 glibc calls the program's constructors itself, if it isn't given a function that does.
typedef void (*Init)(int count, char** arguments, char** environment);
extern const Init __init_array_start[] __attribute__((visibility("hidden")));
extern const Init __init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void);

static void call_constructors(int count, char** arguments, char** environment) {
  _init();
  for (const Init* init = __init_array_start; init != __init_array_end; init++) (*init)(count, arguments, environment);
}

typedef int (*Main)(int count, char** arguments, char** environment);
int old_libc_start_main(Main main, int count, char** arguments, Init init, void (*fini)(void), void (*rtld_fini)(void),
                        void* stack_end);
__asm__(".symver old_libc_start_main, __libc_start_main@GLIBC_2.2.5");

int __wrap___libc_start_main(Main main, int count, char** arguments, Init init, void (*fini)(void),
                             void (*rtld_fini)(void), void* stack_end) {
  return old_libc_start_main(main, count, arguments, init ? init : call_constructors, fini, rtld_fini, stack_end);
}
