// Symbols that headers of GCC 9 and newer use but systems with glibc 2.28 lack, built from those they have. Hidden, so
// that other libraries use their own.

#define HIDDEN(type, function, name, parameters) \
  __attribute__((visibility("hidden"))) type function parameters __asm__(name)

// std::ostringstream's default constructor (GLIBCXX_3.4.26), by way of the one with a mode.
void ostringstream_with_mode(void* stream, int mode)
    __asm__("_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1ESt13_Ios_Openmode");
HIDDEN(void, ostringstream, "_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev", (void* stream));
void ostringstream(void* stream) {
  const int out = 16;
  ostringstream_with_mode(stream, out);
}

// How std::exception_ptr counts its owners (CXXABI_1.3.13), by way of its copy constructor and destructor.
void exception_ptr_copy(void** copy, void* const* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void exception_ptr_destroy(void** pointer) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");
HIDDEN(void, exception_ptr_add_owner, "_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv", (void** pointer));
void exception_ptr_add_owner(void** pointer) {
  void* never_destroyed;
  exception_ptr_copy(&never_destroyed, pointer);
}
HIDDEN(void, exception_ptr_remove_owner, "_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv", (void** pointer));
void exception_ptr_remove_owner(void** pointer) {
  exception_ptr_destroy(pointer);
  *pointer = 0;
}

// Whether a process has one thread (GLIBC_2.32), in which case shared_ptr counts faster.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
