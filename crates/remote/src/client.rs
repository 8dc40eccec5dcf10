//! The actors' end of a connection.

use std::error::Error;
use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Endpoint, Uri};
use tonic::{Request, Status, Streaming};

use crate::RemoteError;
use crate::limits::{ANSWER_TIMEOUT, HANDSHAKE_TIMEOUT, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, MAX_MESSAGE_BYTES};
use crate::proto::actors_client::ActorsClient;
use crate::proto::{ActorMessage, LearnerMessage};
use crate::tls::Trust;
use crate::token::Token;

/// How the two ends disagree about TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMismatch {
    /// The learner ended a connection without TLS, which it may require.
    PerhapsRequired,
    /// The learner does not use TLS.
    NotUsed,
}

/// How to reach the learner.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// `HOST:PORT`.
    pub address: String,
    /// What to show.
    pub token: Option<Token>,
    /// How to recognise the learner; without it the connection is not encrypted.
    pub trust: Option<Trust>,
    /// What the user can do about a mismatch, for messages.
    pub advice: fn(TlsMismatch) -> &'static str,
}

/// One stream of messages in each direction.
pub struct Connection {
    pub outbound: mpsc::Sender<ActorMessage>,
    pub inbound: Streaming<LearnerMessage>,
    pub handle: Handle,
}

impl ConnectOptions {
    /// Checks the options before anything connects.
    pub(crate) fn check(&self) -> Result<(), RemoteError> {
        let has_port =
            self.address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !has_port {
            return Err(RemoteError::Address(self.address.clone()));
        }
        self.trust.as_ref().map_or(Ok(()), |trust| trust.config().map(drop))
    }

    /// Connects and opens a stream, on which `hello` is the first message.
    pub(crate) fn open(&self, handle: &Handle, hello: ActorMessage) -> Result<Connection, Status> {
        let opening = async {
            let channel = self.channel().await?;
            let mut client = ActorsClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
            let (outbound, messages) = mpsc::channel(8);
            let gone = || Status::unavailable("the learner closed the connection");
            outbound.send(hello).await.map_err(|_| gone())?;
            let mut request = Request::new(ReceiverStream::new(messages));
            if let Some(header) = self.token.as_ref().and_then(Token::header) {
                request.metadata_mut().insert("authorization", header);
            }
            let opened = client.play(request).await.map_err(|status| self.explained(status))?;
            Ok::<_, Status>((outbound, opened.into_inner()))
        };
        let opened = handle.block_on(async { timeout(ANSWER_TIMEOUT, opening).await });
        let (outbound, inbound) =
            opened.map_err(|_| Status::deadline_exceeded("the learner did not answer in time"))??;
        Ok(Connection { outbound, inbound, handle: handle.clone() })
    }

    /// Adds what may be wrong with the options to the status of a stream that the other end did not open.
    fn explained(&self, status: Status) -> Status {
        let is_reply = status.source().is_none();
        if is_reply || self.trust.is_some() {
            return status;
        }
        Status::unavailable(format!(
            "the learner closed the connection; {}",
            (self.advice)(TlsMismatch::PerhapsRequired)
        ))
    }

    async fn channel(&self) -> Result<tonic::transport::Channel, Status> {
        let unavailable = |error: String| Status::unavailable(error);
        let uri = format!("http://{}", self.address);
        let endpoint = Endpoint::from_shared(uri).map_err(|error| unavailable(error.to_string()))?;
        let endpoint = endpoint
            .connect_timeout(HANDSHAKE_TIMEOUT)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20);
        let tls = match &self.trust {
            Some(trust) => {
                let config = trust.config().map_err(|error| unavailable(error.to_string()))?;
                Some(TlsConnector::from(std::sync::Arc::new(config)))
            }
            None => None,
        };
        let address = self.address.clone();
        let connector = tower::service_fn(move |_: Uri| connect(address.clone(), tls.clone()));
        endpoint.connect_with_connector(connector).await.map_err(|error| self.not_connected(&error))
    }

    /// Why there is no connection. `PermissionDenied` if the learner is another one than the options say.
    fn not_connected(&self, error: &(dyn Error + 'static)) -> Status {
        match find::<rustls::Error>(error) {
            Some(rustls::Error::General(why)) => Status::permission_denied(why),
            Some(error @ rustls::Error::InvalidCertificate(_)) => Status::permission_denied(error.to_string()),
            Some(rustls::Error::InvalidMessage(_)) => {
                Status::unavailable(format!("the learner does not use TLS; {}", (self.advice)(TlsMismatch::NotUsed)))
            }
            _ => {
                Status::unavailable(io_reason(error).unwrap_or_else(|| "the learner closed the connection".to_owned()))
            }
        }
    }
}

/// A plain or an encrypted connection.
trait Wire: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send> Wire for T {}

async fn connect(address: String, tls: Option<TlsConnector>) -> io::Result<TokioIo<Box<dyn Wire>>> {
    let stream = TcpStream::connect(&address).await?;
    // Messages are small and awaited.
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(TokioIo::new(Box::new(stream))) };
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host).trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let handshake = timeout(HANDSHAKE_TIMEOUT, tls.connect(name, stream)).await;
    let stream = handshake.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(TokioIo::new(Box::new(stream)))
}

/// What a status says, without the words of the protocol if the connection is lost.
pub fn reason(status: &Status) -> String {
    match status.source() {
        None => status.message().to_owned(),
        Some(_) => io_reason(status).unwrap_or_else(|| "the learner closed the connection".to_owned()),
    }
}

/// What the operating system says, without its number.
fn io_reason(error: &(dyn Error + 'static)) -> Option<String> {
    let text = find::<io::Error>(error)?.to_string();
    Some(text.split(" (os error").next().unwrap_or_default().to_owned())
}

/// The first error of a kind among an error's causes.
pub fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        // Its source would be the cause of what it carries.
        let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = carried.map(|carried| carried as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}

impl Connection {
    /// Waits for the next message.
    pub fn receive(&mut self, patience: Duration) -> Result<LearnerMessage, Status> {
        let Self { inbound, handle, .. } = self;
        match handle.block_on(async { timeout(patience, inbound.message()).await }) {
            Ok(Ok(Some(message))) => Ok(message),
            Ok(Ok(None)) => Err(Status::unavailable("the learner closed the connection")),
            Ok(Err(status)) => Err(status),
            Err(_) => Err(Status::deadline_exceeded("it stopped answering")),
        }
    }

    /// Sends a message.
    pub fn send(&mut self, message: ActorMessage) -> Result<(), Status> {
        let Self { outbound, handle, .. } = self;
        match handle.block_on(async { timeout(ANSWER_TIMEOUT, outbound.send(message)).await }) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Status::unavailable("the learner closed the connection")),
            Err(_) => Err(Status::deadline_exceeded("it stopped reading")),
        }
    }
}
