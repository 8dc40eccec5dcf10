//! Requests out and replies in, each within a time limit.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::message::{HEADER_BYTES, Header, Request, Status};

/// The most bytes that may follow a reply's header: a saved environment, the largest of them, is far smaller.
const MOST_REPLY_BYTES: u32 = 1 << 30;

/// Why a request could not be sent or its reply could not be had.
#[derive(Debug)]
pub enum ChannelError {
    /// The other side is gone.
    Closed,
    /// The time limit has passed.
    TimedOut,
    /// The system refused.
    Io(io::Error),
    /// What came is no reply to what was asked.
    Nonsense(String),
}

/// A request whose reply is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What was asked.
    pub request: Request,
    /// The group it concerns.
    pub group: usize,
    /// The environment it concerns.
    pub env: usize,
    serial: u32,
}

/// A reply.
#[derive(Debug)]
pub struct Reply {
    /// How it went.
    pub status: Status,
    /// What followed the header.
    pub content: Vec<u8>,
}

/// The socket to one worker.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    serial: u32,
    /// The read timeout that the socket has now, so that it is only set when it changes.
    read_timeout: Option<Duration>,
}

impl Channel {
    /// A channel over a connected socket.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, serial: 0, read_timeout: None }
    }

    /// Sends a request; its reply is fetched by [`receive`](Self::receive).
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

    /// Waits for the reply to `asked`, which must be the oldest request that has not been answered.
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
            return Err(ChannelError::Nonsense(format!("{header:?} came where {asked:?} was to be answered")));
        };
        if header.length > MOST_REPLY_BYTES {
            return Err(ChannelError::Nonsense(format!("it announced {} bytes", header.length)));
        }
        let mut content = Vec::new();
        // Grown as the bytes come, so that a false length costs nothing.
        while content.len() < header.length as usize {
            let begin = content.len();
            let part = (header.length as usize - begin).min(1 << 20);
            content.resize(begin + part, 0);
            self.read(&mut content[begin..], limit, &mut deadline)?;
        }
        Ok(Reply { status, content })
    }

    /// Fills `out` before the deadline. It is put off where the call was interrupted: we were stopped and went on, and
    /// the time between is nobody's fault.
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
                    interrupted_or(error)?;
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
            // Requests fit into the socket's buffer; only what is larger can block.
            if bytes.len() > HEADER_BYTES {
                self.stream.set_write_timeout(Some(remaining(deadline)?)).map_err(ChannelError::Io)?;
            }
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) => {
                    interrupted_or(error)?;
                    deadline = Instant::now() + limit;
                }
            }
        }
        Ok(())
    }
}

/// The time left until `deadline`, or the error that there is none.
fn remaining(deadline: Instant) -> Result<Duration, ChannelError> {
    deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()).ok_or(ChannelError::TimedOut)
}

/// An interrupted call is to be made again; any other error is final.
fn interrupted_or(error: io::Error) -> Result<(), ChannelError> {
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

    fn pair() -> (Channel, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Channel::new(ours), theirs)
    }

    fn reply_to(asked: Asked, length: u32) -> Header {
        let Asked { request, group, env, serial } = asked;
        Header { request: request as u8, group: group as u8, detail: 0, env: env as u32, length, serial }
    }

    #[test]
    fn a_reply_with_content_is_received() {
        let (mut channel, mut worker) = pair();
        let asked = channel.send((Request::Save, 1, 9), 0, b"", SHORT).unwrap();
        worker.write_all(&reply_to(asked, 3).to_bytes()).unwrap();
        worker.write_all(b"abc").unwrap();
        let reply = channel.receive(asked, SHORT).unwrap();
        assert_eq!((reply.status, reply.content.as_slice()), (Status::Done, &b"abc"[..]));
    }

    #[test]
    fn silence_and_dribble_end_at_the_limit() {
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
        assert!(begin.elapsed() < SHORT * 20);
        drop(channel);
        dribble.join().unwrap();
    }

    #[test]
    fn a_stale_serial_or_another_group_is_nonsense() {
        for change in [|h: &mut Header| h.serial -= 1, |h: &mut Header| h.group += 1, |h: &mut Header| h.detail = 9] {
            let (mut channel, mut worker) = pair();
            let asked = channel.send((Request::Step, 0, 0), 0, b"", SHORT).unwrap();
            let mut header = reply_to(asked, 0);
            change(&mut header);
            worker.write_all(&header.to_bytes()).unwrap();
            assert!(matches!(channel.receive(asked, SHORT), Err(ChannelError::Nonsense(_))));
        }
    }

    #[test]
    fn a_huge_length_is_refused_and_a_false_one_times_out_cheaply() {
        for (length, timed_out) in [(u32::MAX, false), (MOST_REPLY_BYTES, true)] {
            let (mut channel, mut worker) = pair();
            let asked = channel.send((Request::Save, 0, 0), 0, b"", SHORT).unwrap();
            worker.write_all(&reply_to(asked, length).to_bytes()).unwrap();
            let error = channel.receive(asked, SHORT).unwrap_err();
            assert_eq!(matches!(error, ChannelError::TimedOut), timed_out, "{error:?}");
        }
    }

    #[test]
    fn a_closed_socket_is_noticed_both_ways() {
        let (mut channel, worker) = pair();
        let asked = channel.send((Request::Step, 0, 0), 0, b"", SHORT).unwrap();
        drop(worker);
        assert!(matches!(channel.receive(asked, SHORT), Err(ChannelError::Closed)));
        assert!(matches!(channel.send((Request::Step, 0, 0), 0, b"", SHORT), Err(ChannelError::Closed)));
    }

    #[test]
    fn a_worker_that_does_not_read_ends_at_the_limit() {
        let (mut channel, _worker) = pair();
        let large = vec![0; 4 << 20];
        assert!(matches!(channel.send((Request::Restore, 0, 0), 0, &large, SHORT), Err(ChannelError::TimedOut)));
    }
}
