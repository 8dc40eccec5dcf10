//! Threads of libtorch that wait for each other on a CPU, without taking the cores from others meanwhile.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Turns that a thread waits in a circle, a fraction of a millisecond, before it sleeps; without it there are hundreds of
/// thousands, and on a busy machine each of them takes a core from the thread that is waited for.
const TURNS: &str = "20000";

/// Starts this program over in the same process, with that set: OpenMP looks at it before `main`. Whoever has set how
/// threads wait is left to it, and where the program can't be started over all stays as it is.
pub fn wait_shortly() {
    if ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"].iter().any(|name| env::var_os(name).is_some()) {
        return;
    }
    let mut arguments = env::args_os();
    if let (Ok(program), Some(name)) = (env::current_exe(), arguments.next()) {
        // It returns only if it failed.
        let _ = Command::new(program).arg0(name).args(arguments).env("GOMP_SPINCOUNT", TURNS).exec();
    }
}
