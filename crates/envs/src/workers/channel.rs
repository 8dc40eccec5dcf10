//! Sends requests and receives replies, each within a time limit.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::message::{HEADER_BYTES, Header, Request, Status};

/// Maximum number of bytes that may follow a reply's header.
///
/// A saved environment, the largest reply, is far smaller.
const MAX_REPLY_BYTES: u32 = 1 << 30;

/// Why an exchange failed.
#[derive(Debug)]
pub enum ChannelError {
    /// The other side has closed the connection.
    Closed,
    /// The time limit has passed.
    TimedOut,
    /// The system reported an error.
    Io(io::Error),
    /// The reply does not fit the request.
    Mismatch(String),
}

/// A request that has not been answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The request.
    pub request: Request,
    /// Its group.
    pub group: usize,
    /// Its environment.
    pub env: usize,
    serial: u32,
}

/// A reply.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: Status,
    /// The bytes after the header.
    pub content: Vec<u8>,
}

/// The socket to one worker.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    serial: u32,
    /// The socket's current read timeout, which is only set when it changes.
    read_timeout: Option<Duration>,
}

impl Channel {
    /// Creates a channel over a connected socket.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, serial: 0, read_timeout: None }
    }

    /// Sends a request; [`receive`](Self::receive) waits for its reply.
    pub fn send(
        &mut self,
        (request, group, env): (Request, usize, usize),
        slot: usize,
        content: &[u8],
        limit: Duration,
    ) -> Result<Asked, ChannelError> {
        self.serial = self.serial.wrapping_add(1);
        let length = u32::try_from(content.len())
            .map_err(|_| ChannelError::Io(io::Error::new(ErrorKind::InvalidInput, "more than 4 GiB to send")))?;
        let serial = self.serial;
        let header =
            Header { request: request as u8, group: group as u8, detail: slot as u8, env: env as u32, length, serial };
        if content.is_empty() {
            self.write(&header.to_bytes(), limit)?;
        } else {
            self.write(&[&header.to_bytes(), content].concat(), limit)?;
        }
        Ok(Asked { request, group, env, serial })
    }

    /// Waits for the reply to `asked`, which must be the oldest unanswered request.
    pub fn receive(&mut self, asked: Asked, limit: Duration) -> Result<Reply, ChannelError> {
        let mut deadline = Instant::now() + limit;
        let mut bytes = [0; HEADER_BYTES];
        self.read(&mut bytes, limit, &mut deadline)?;
        let header = Header::from_bytes(&bytes);
        let Asked { request, group, env, serial } = asked;
        let status = header.status();
        let answers = (header.request, header.group as usize, header.env as usize, header.serial)
            == (request as u8, group, env, serial);
        let (Some(status), true) = (status, answers) else {
            return Err(ChannelError::Mismatch(format!("{header:?} in reply to {asked:?}")));
        };
        if header.length > MAX_REPLY_BYTES {
            return Err(ChannelError::Mismatch(format!("a reply of {} bytes", header.length)));
        }
        let mut content = Vec::new();
        // Grows as bytes arrive, so that a wrong length costs no memory.
        while content.len() < header.length as usize {
            let begin = content.len();
            let part = (header.length as usize - begin).min(1 << 20);
            content.resize(begin + part, 0);
            self.read(&mut content[begin..], limit, &mut deadline)?;
        }
        Ok(Reply { status, content })
    }

    /// Fills `out` before the deadline.
    ///
    /// An interrupted call moves the deadline: this process was stopped and resumed, which is not the worker's fault.
    fn read(&mut self, mut out: &mut [u8], limit: Duration, deadline: &mut Instant) -> Result<(), ChannelError> {
        let mut wait = limit;
        while !out.is_empty() {
            if self.read_timeout != Some(wait) {
                self.stream.set_read_timeout(Some(wait)).map_err(ChannelError::Io)?;
                self.read_timeout = Some(wait);
            }
            match self.stream.read(out) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(count) => out = &mut out[count..],
                Err(error) => {
                    accept_interruption(error)?;
                    *deadline = Instant::now() + limit;
                }
            }
            if !out.is_empty() {
                wait = remaining(*deadline)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8], limit: Duration) -> Result<(), ChannelError> {
        let mut deadline = Instant::now() + limit;
        while !bytes.is_empty() {
            // A plain header fits into the socket's buffer; only longer requests can block.
            if bytes.len() > HEADER_BYTES {
                self.stream.set_write_timeout(Some(remaining(deadline)?)).map_err(ChannelError::Io)?;
            }
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) => {
                    accept_interruption(error)?;
                    deadline = Instant::now() + limit;
                }
            }
        }
        Ok(())
    }
}

/// Returns the time left until `deadline`.
fn remaining(deadline: Instant) -> Result<Duration, ChannelError> {
    deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()).ok_or(ChannelError::TimedOut)
}

/// Accepts an interruption, after which the call is repeated; any other error is final.
fn accept_interruption(error: io::Error) -> Result<(), ChannelError> {
    match error.kind() {
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(ChannelError::TimedOut),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Err(ChannelError::Closed),
        _ => Err(ChannelError::Io(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    fn pair() -> (Channel, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Channel::new(ours), theirs)
    }

    fn reply_to(asked: Asked, length: u32) -> Header {
        let Asked { request, group, env, serial } = asked;
        Header { request: request as u8, group: group as u8, detail: 0, env: env as u32, length, serial }
    }

    #[test]
    fn receives_replies_with_content() {
        let (mut channel, mut worker) = pair();
        let asked = channel.send((Request::Save, 1, 9), 0, b"", LONG).unwrap();
        worker.write_all(&reply_to(asked, 3).to_bytes()).unwrap();
        worker.write_all(b"abc").unwrap();
        let reply = channel.receive(asked, LONG).unwrap();
        assert_eq!((reply.status, reply.content.as_slice()), (Status::Done, &b"abc"[..]));
    }

    #[test]
    fn silence_and_dribble_time_out() {
        let (mut channel, mut worker) = pair();
        let asked = channel.send((Request::Step, 0, 0), 0, b"", SHORT).unwrap();
        let begin = Instant::now();
        assert!(matches!(channel.receive(asked, SHORT), Err(ChannelError::TimedOut)));
        let dribble = std::thread::spawn(move || {
            while worker.write_all(&[4]).is_ok() {
                std::thread::sleep(SHORT / 5);
            }
        });
        assert!(matches!(channel.receive(asked, SHORT), Err(ChannelError::TimedOut)));
        assert!(begin.elapsed() < LONG);
        drop(channel);
        dribble.join().unwrap();
    }

    #[test]
    fn refuses_replies_to_other_requests() {
        for change in [|h: &mut Header| h.serial -= 1, |h: &mut Header| h.group += 1, |h: &mut Header| h.detail = 9] {
            let (mut channel, mut worker) = pair();
            let asked = channel.send((Request::Step, 0, 0), 0, b"", SHORT).unwrap();
            let mut header = reply_to(asked, 0);
            change(&mut header);
            worker.write_all(&header.to_bytes()).unwrap();
            assert!(matches!(channel.receive(asked, LONG), Err(ChannelError::Mismatch(_))));
        }
    }

    #[test]
    fn refuses_huge_lengths_and_times_out_on_wrong_ones() {
        for (length, timed_out) in [(u32::MAX, false), (MAX_REPLY_BYTES, true)] {
            let (mut channel, mut worker) = pair();
            let asked = channel.send((Request::Save, 0, 0), 0, b"", SHORT).unwrap();
            worker.write_all(&reply_to(asked, length).to_bytes()).unwrap();
            let error = channel.receive(asked, SHORT).unwrap_err();
            assert_eq!(matches!(error, ChannelError::TimedOut), timed_out, "{error:?}");
        }
    }

    #[test]
    fn notices_closed_sockets_both_ways() {
        let (mut channel, worker) = pair();
        let asked = channel.send((Request::Step, 0, 0), 0, b"", SHORT).unwrap();
        drop(worker);
        assert!(matches!(channel.receive(asked, LONG), Err(ChannelError::Closed)));
        assert!(matches!(channel.send((Request::Step, 0, 0), 0, b"", LONG), Err(ChannelError::Closed)));
    }

    #[test]
    fn times_out_on_workers_that_do_not_read() {
        let (mut channel, _worker) = pair();
        let large = vec![0; 4 << 20];
        assert!(matches!(channel.send((Request::Restore, 0, 0), 0, &large, SHORT), Err(ChannelError::TimedOut)));
    }
}
