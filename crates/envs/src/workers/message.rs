//! The 16-byte header of every request and reply.

/// Version of the protocol, which both sides must share.
pub const PROTOCOL: u32 = 6;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;

/// A request to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Request {
    /// Make the environments described by the JSON that follows; the reply is the hello.
    Open = 1,
    /// Map the shared memory with the layout of the JSON that follows.
    Attach = 2,
    /// Begin the episodes with the numbers in shared memory, in every environment of a group.
    Reset = 3,
    /// Step every environment of a group with the actions in shared memory.
    Step = 4,
    /// Save one environment; the reply is the save.
    Save = 5,
    /// Restore one environment from the bytes that follow.
    Restore = 6,
    /// Close the environments and exit.
    Close = 7,
    /// Render one environment; the reply is a picture.
    Render = 8,
}

impl Request {
    /// The name in error messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Attach => "attach",
            Self::Reset => "reset",
            Self::Step => "step",
            Self::Save => "save",
            Self::Restore => "restore",
            Self::Close => "close",
            Self::Render => "render",
        }
    }
}

/// The status of a reply, in the order of its codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Done,
    /// Not possible, for the reason that follows; nothing has changed.
    Refused,
    /// Failed, for the reason that follows; the worker can no longer be trusted.
    Failed,
    /// The save was played with other options, as the text that follows explains; nothing has changed.
    Foreign,
    /// A step has ended episodes and the next ones are beginning; another reply follows.
    Beginning,
}

/// The header of a message, little-endian.
///
/// Request, group, slot or status, 0 (u8 each), environment, bytes that follow, serial number (u32 each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The [`Request`].
    pub request: u8,
    /// The group.
    pub group: u8,
    /// The slot for new observations in a request, the [`Status`] in a reply.
    pub detail: u8,
    /// The environment's index in the worker.
    pub env: u32,
    /// Bytes that follow the header.
    pub length: u32,
    /// Number of the request, which its reply repeats.
    pub serial: u32,
}

impl Header {
    /// Writes the header.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..3].copy_from_slice(&[self.request, self.group, self.detail]);
        bytes[4..8].copy_from_slice(&self.env.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.serial.to_le_bytes());
        bytes
    }

    /// Reads a header.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [head, env, length, serial] = std::array::from_fn(|i| std::array::from_fn(|j| bytes[4 * i + j]));
        let [request, group, detail, _] = head;
        let [env, length, serial] = [env, length, serial].map(u32::from_le_bytes);
        Self { request, group, detail, env, length, serial }
    }

    /// Returns the status of a reply; `None` if it is invalid.
    pub fn status(self) -> Option<Status> {
        use Status::{Beginning, Done, Failed, Foreign, Refused};
        [Done, Refused, Failed, Foreign, Beginning].get(usize::from(self.detail)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_and_reads_literal_bytes() {
        let header = Header { request: 4, group: 1, detail: 1, env: 0x0102, length: 0x0304_0506, serial: 7 };
        let bytes = [4, 1, 1, 0, 2, 1, 0, 0, 6, 5, 4, 3, 7, 0, 0, 0];
        assert_eq!(header.to_bytes(), bytes);
        assert_eq!(Header::from_bytes(&bytes), header);
    }
}
