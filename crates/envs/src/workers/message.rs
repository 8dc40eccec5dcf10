//! The fixed 16 bytes that begin every request and every reply.

/// The version of the protocol; both sides must speak the same.
pub const PROTOCOL: u32 = 4;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;

/// What a worker can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Request {
    /// Make the environments of the JSON that follows; the reply carries the hello.
    Open = 1,
    /// Map the shared memory, laid out as the JSON that follows says.
    Attach = 2,
    /// Begin the episodes whose numbers lie in shared memory, in every environment of a group.
    Reset = 3,
    /// Step every environment of a group with the actions in shared memory.
    Step = 4,
    /// Save one environment; the reply carries the bytes.
    Save = 5,
    /// Go on in one environment from the bytes that follow.
    Restore = 6,
    /// Close the environments and end.
    Close = 7,
}

impl Request {
    /// Its name in messages to the user.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Attach => "attach",
            Self::Reset => "reset",
            Self::Step => "step",
            Self::Save => "save",
            Self::Restore => "restore",
            Self::Close => "close",
        }
    }
}

/// How a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was done.
    Done,
    /// It cannot be done, for the reason that follows, and nothing has changed.
    Refused,
    /// It failed, for the reason that follows, and the worker can no longer be relied on.
    Failed,
    /// What it is to go on from is of another kind of play, as the text that follows says, and nothing has changed.
    Foreign,
    /// A step was taken and has ended episodes: the next ones are being begun, and another reply follows.
    Beginning,
}

/// A request's or a reply's first bytes, little-endian: request, group, slot or status, 0 (u8 each), environment,
/// bytes that follow, serial number (u32 each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What is asked for, or was.
    pub request: u8,
    /// The group it concerns.
    pub group: u8,
    /// In a request, the slot that new observations go to; in a reply, how it went.
    pub detail: u8,
    /// The environment it concerns, counted over the worker.
    pub env: u32,
    /// Bytes that follow the header.
    pub length: u32,
    /// Counts a worker's requests; a reply repeats it.
    pub serial: u32,
}

impl Header {
    /// The header as it is sent.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.request;
        bytes[1] = self.group;
        bytes[2] = self.detail;
        bytes[4..8].copy_from_slice(&self.env.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.serial.to_le_bytes());
        bytes
    }

    /// The header that was received.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Self {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self {
            request: bytes[0],
            group: bytes[1],
            detail: bytes[2],
            env: number(4),
            length: number(8),
            serial: number(12),
        }
    }

    /// How the request of this reply went; `None` if the byte means nothing.
    pub fn status(self) -> Option<Status> {
        match self.detail {
            0 => Some(Status::Done),
            1 => Some(Status::Refused),
            2 => Some(Status::Failed),
            3 => Some(Status::Foreign),
            4 => Some(Status::Beginning),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_its_literal_bytes() {
        let header = Header { request: 4, group: 1, detail: 1, env: 0x0102, length: 0x0304_0506, serial: 7 };
        let bytes = [4, 1, 1, 0, 2, 1, 0, 0, 6, 5, 4, 3, 7, 0, 0, 0];
        assert_eq!(header.to_bytes(), bytes);
        assert_eq!(Header::from_bytes(&bytes), header);
    }
}
