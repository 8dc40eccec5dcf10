//! Keeps signals away from the threads that compute.
//!
//! A signal handler that runs on a thread inside libtorch's LSTM for CPUs corrupts its computation: the process crashes
//! a moment later, with "corrupted size vs. prev_size" or without a message. So no such thread may receive a signal
//! that has a handler.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// Blocks these signals on this thread and those it starts later; another thread receives them.
///
/// Programs that it starts inherit this and have to unblock them.
pub fn block(signals: &[i32]) -> io::Result<()> {
    change(libc::SIG_BLOCK, signals)
}

/// Unblocks these signals on this thread.
pub fn unblock(signals: &[i32]) -> io::Result<()> {
    change(libc::SIG_UNBLOCK, signals)
}

/// Returns whether this process was started with a signal ignored, as `nohup` does with SIGHUP.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: sets no new action; the current one is completely written if the call succeeds.
    unsafe {
        if libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(action.assume_init().sa_sigaction == libc::SIG_IGN)
    }
}

fn change(how: i32, signals: &[i32]) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set before it is read; only this thread's mask changes.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            if libc::sigaddset(set.as_mut_ptr(), signal) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        match libc::pthread_sigmask(how, set.as_ptr(), ptr::null_mut()) {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;

    /// Reads the blocked signals of this thread from the system.
    fn blocked() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    #[test]
    fn threads_inherit_blocked_signals_until_they_unblock_them() {
        let bit = |signal: i32| 1 << (signal - 1);
        let (hup, usr1) = (libc::SIGHUP, libc::SIGUSR1);
        let ours = bit(hup) | bit(usr1);
        assert_eq!(blocked() & ours, 0);
        block(&[hup, usr1]).unwrap();
        let child = thread::spawn(move || {
            assert_eq!(blocked() & ours, ours);
            unblock(&[hup]).unwrap();
            blocked() & ours
        });
        assert_eq!(child.join().unwrap(), bit(usr1));
        assert_eq!(blocked() & ours, ours);
        unblock(&[hup, usr1]).unwrap();
        assert!(block(&[0]).is_err());
    }

    #[test]
    fn reports_ignored_signals() {
        // Rust's runtime ignores SIGPIPE.
        assert!(is_ignored(libc::SIGPIPE).unwrap());
        assert!(!is_ignored(libc::SIGUSR2).unwrap());
        assert!(is_ignored(-1).is_err());
    }
}
