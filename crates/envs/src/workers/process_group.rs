//! Ends a process together with everything that it has started.
#![allow(unsafe_code)]

/// Kills all processes of the group that `leader` leads or led. To be called before the leader's id can belong to
/// another process: until it has been waited for, or right after.
pub fn kill_group(leader: u32) {
    let Ok(group) = i32::try_from(leader) else { return };
    // 1 and 0 would stand for every process there is, and for our own group.
    if group > 1 {
        // SAFETY: the call takes two numbers and touches no memory. It fails only where nobody is left to be killed.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}
