//! How OpenMP threads of libtorch wait for each other on a CPU.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Iterations that a thread spins, a fraction of a millisecond, before it sleeps. The default is hundreds of thousands,
/// which on a busy machine take a core away from the very thread that is waited for.
const SPIN_COUNT: &str = "20000";

/// Restarts this program in the same process with a short spin count, as OpenMP reads it before `main`.
///
/// Does nothing if the user has chosen how threads wait, or if the restart fails.
pub fn limit_spinning() {
    if ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"].iter().any(|name| env::var_os(name).is_some()) {
        return;
    }
    let mut arguments = env::args_os();
    if let (Ok(program), Some(name)) = (env::current_exe(), arguments.next()) {
        // Returns only on failure.
        let _ = Command::new(program).arg0(name).args(arguments).env("GOMP_SPINCOUNT", SPIN_COUNT).exec();
    }
}
