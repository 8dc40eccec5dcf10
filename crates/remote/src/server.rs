//! The learner's end: accepts connections, checks who they are, and starts a session for each stream.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status, Streaming};
use train::roles::remote_actors::{JoinError, RemoteActors};

use crate::client::find;
use crate::counted::Counted;
use crate::limits::{
    FAREWELL_TIMEOUT, HANDSHAKE_TIMEOUT, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, MAX_CONCURRENT_STREAMS,
    MAX_CONNECTIONS, MAX_HEADER_BYTES, MAX_MESSAGE_BYTES, MAX_NAME_LENGTH,
};
use crate::proto::actor_message::Kind;
use crate::proto::actors_server::{Actors, ActorsServer};
use crate::proto::learner_message::Kind as Reply;
use crate::proto::{ActorMessage, Goodbye, Hello, LearnerMessage};
use crate::session::{Session, SessionEnd};
use crate::tls::Identity;
use crate::token::Token;
use crate::{RemoteError, VERSION};

/// How to listen for actors.
#[derive(Clone)]
pub struct ListenOptions {
    /// Address and port; port 0 chooses one.
    pub address: SocketAddr,
    /// What actors have to show. Required unless the address is a loopback one.
    pub token: Option<Token>,
    /// Certificate and key. Required unless the address is a loopback one.
    pub identity: Option<Identity>,
    /// Name of the run, by which actors recognise it.
    pub run: String,
}

/// Listens for actors until it is dropped.
pub struct Listener {
    address: SocketAddr,
    runtime: Option<Runtime>,
    sessions: Arc<Semaphore>,
    connections: Arc<Semaphore>,
}

impl Listener {
    /// Starts to listen. Actors can join once the run trains.
    pub fn start(options: ListenOptions, actors: Arc<RemoteActors>) -> Result<Self, RemoteError> {
        let is_protected = options.token.is_some() && options.identity.is_some();
        if !options.address.ip().is_loopback() && !is_protected {
            return Err(RemoteError::Unprotected(options.address));
        }
        let listen = |cause| RemoteError::Listen { address: options.address, cause };
        let listener = StdListener::bind(options.address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let mut builder = Builder::new_multi_thread();
        let runtime =
            builder.worker_threads(2).thread_name("remote").enable_all().build().map_err(RemoteError::Runtime)?;
        let sessions = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let service = ActorsService {
            actors: Arc::clone(&actors),
            token: options.token.clone(),
            run: options.run.clone(),
            sessions: Arc::clone(&sessions),
        };
        let acceptor = options.identity.as_ref().map(|identity| TlsAcceptor::from(Arc::clone(&identity.config)));
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let open = Arc::clone(&connections);
        runtime.spawn(async move {
            // Registering cannot fail inside the runtime; without a listener nobody joins.
            if let Ok(listener) = TcpListener::from_std(listener) {
                accept(listener, acceptor, service, open).await;
            }
        });
        Ok(Self { address, runtime: Some(runtime), sessions, connections })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        // Sessions have said goodbye once all of their permits are back, and actors have heard it once they have closed
        // their connections. One permit is that of the next connection.
        let all_gone = async {
            let _ = self.sessions.acquire_many(MAX_CONNECTIONS as u32).await;
            let _ = self.connections.acquire_many(MAX_CONNECTIONS as u32 - 1).await;
        };
        let _ = runtime.block_on(async { timeout(FAREWELL_TIMEOUT, all_gone).await });
        runtime.shutdown_timeout(Duration::from_millis(200));
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    service: ActorsService,
    connections: Arc<Semaphore>,
) {
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            // Too many open files, for instance: others may be closed by then.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (acceptor, service) = (acceptor.clone(), service.clone());
        tokio::spawn(async move {
            connection(stream, peer, acceptor, service).await;
            drop(permit);
        });
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, acceptor: Option<TlsAcceptor>, service: ActorsService) {
    let actors = Arc::clone(&service.actors);
    // Messages are small and awaited.
    let _ = stream.set_nodelay(true);
    let stream = Counted::new(stream, Arc::clone(&actors));
    let Some(acceptor) = acceptor else { return serve(stream, peer, service).await };
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => serve(stream, peer, service).await,
        Ok(Err(error)) => actors.refuse("tls", &format!("no TLS connection from {}: {error}", peer.ip())),
        Err(_) => actors.refuse("tls", &format!("{} did not finish the TLS handshake", peer.ip())),
    }
}

/// Serves the streams of a connection until it ends.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: SocketAddr, service: ActorsService) {
    let actors = Arc::clone(&service.actors);
    let greeted = Arc::new(AtomicBool::new(false));
    let greeting = GreetedService { service, greeted: Arc::clone(&greeted) };
    let server =
        ActorsServer::new(greeting).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(usize::MAX);
    let routes = TowerToHyperService::new(Routes::new(server).prepare());
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20);
    let serving = http.serve_connection(TokioIo::new(stream), routes);
    tokio::pin!(serving);
    let ended = match timeout(HANDSHAKE_TIMEOUT, &mut serving).await {
        Ok(ended) => ended,
        Err(_) if greeted.load(Ordering::Relaxed) => serving.await,
        Err(_) => return actors.refuse("silent", &format!("{} connected and sent nothing", peer.ip())),
    };
    // A connection that was lost, for instance while this process was stopped, does not count as a refusal.
    if let Err(error) = ended
        && !greeted.load(Ordering::Relaxed)
        && find::<std::io::Error>(&error).is_none()
    {
        actors.refuse("http", &format!("{} does not speak HTTP/2: {error}", peer.ip()));
    }
}

/// The service of one connection, which notes that it was used as intended.
struct GreetedService {
    service: ActorsService,
    greeted: Arc<AtomicBool>,
}

#[derive(Clone)]
struct ActorsService {
    actors: Arc<RemoteActors>,
    token: Option<Token>,
    run: String,
    sessions: Arc<Semaphore>,
}

type Replies = ReceiverStream<Result<LearnerMessage, Status>>;

#[tonic::async_trait]
impl Actors for GreetedService {
    type PlayStream = Replies;

    async fn play(&self, request: Request<Streaming<ActorMessage>>) -> Result<Response<Replies>, Status> {
        let ActorsService { actors, token, .. } = &self.service;
        if let Some(token) = token
            && !token.is_shown_by(request.metadata().get("authorization"))
        {
            actors.refuse("token", "wrong or missing token");
            return Err(Status::unauthenticated("wrong or missing token"));
        }
        self.greeted.store(true, Ordering::Relaxed);
        self.service.begin(request.into_inner()).await
    }
}

impl ActorsService {
    /// Takes the first message of a stream and starts its session.
    async fn begin(&self, mut messages: Streaming<ActorMessage>) -> Result<Response<Replies>, Status> {
        let hello = match timeout(HANDSHAKE_TIMEOUT, messages.message()).await {
            Ok(Ok(Some(ActorMessage { kind: Some(Kind::Hello(hello)) }))) => hello,
            Ok(Ok(_)) => return Err(self.refuse("hello", "its first message is not a hello")),
            Ok(Err(status)) => {
                self.refuse_malformed(&status);
                return Err(status);
            }
            Err(_) => return Err(self.refuse("hello", "it did not say hello")),
        };
        let Hello { version, actor, host, environments, .. } = hello;
        if version != VERSION {
            let version: String = version.chars().filter(|c| !c.is_control()).take(MAX_NAME_LENGTH).collect();
            let what = format!("the learner runs meme {VERSION}, the actor meme {version}; use the same version");
            return Err(self.refuse("version", &what));
        }
        let is_name = |name: &str| (1..=MAX_NAME_LENGTH).contains(&name.len()) && !name.contains(char::is_control);
        if !is_name(&actor) || !is_name(&host) {
            return Err(self.refuse("hello", "its name is not valid"));
        }
        let (replies, outbound) = mpsc::channel(8);
        let joined = self.actors.join(&actor, &host, environments as usize);
        let joined = match joined {
            Ok(joined) => joined,
            Err(JoinError::Finished) => {
                // There is room for one message.
                let _ = replies.send(Ok(Reply::Goodbye(Goodbye { finished: true }).into())).await;
                return Ok(Response::new(ReceiverStream::new(outbound)));
            }
            Err(error @ JoinError::Full(_)) => return Err(Status::resource_exhausted(error.to_string())),
            Err(error) => return Err(Status::unavailable(error.to_string())),
        };
        let Ok(permit) = Arc::clone(&self.sessions).acquire_owned().await else {
            return Err(Status::unavailable("the learner is stopping"));
        };
        let (inbox, inbound) = mpsc::channel(8);
        let pump = self.clone();
        tokio::spawn(async move { pump.pump(messages, inbox).await });
        let session = Session {
            actor: joined,
            inbound,
            outbound: replies.clone(),
            handle: Handle::current(),
            run: self.run.clone(),
            saved: None,
        };
        let service = self.clone();
        let run = move || {
            service.run(session, &replies, &host);
            drop(permit);
        };
        match thread::Builder::new().name("remote-actor".to_owned()).spawn(run) {
            Ok(_) => Ok(Response::new(ReceiverStream::new(outbound))),
            Err(error) => Err(Status::unavailable(format!("the learner cannot start a thread: {error}"))),
        }
    }

    /// Runs a session to its end, and sends the actor why it ended.
    fn run(&self, mut session: Session, replies: &mpsc::Sender<Result<LearnerMessage, Status>>, host: &str) {
        let end = session.serve();
        let handle = session.handle.clone();
        // First, so that the actor finds its environments free when it connects again.
        drop(session);
        let last = match end {
            SessionEnd::Stopping => Ok(Reply::Goodbye(Goodbye { finished: self.actors.is_finished() }).into()),
            SessionEnd::Gone => return,
            SessionEnd::Refused(what) => {
                self.actors.refuse("message", &format!("{host}: {what}"));
                Err(Status::invalid_argument(what))
            }
        };
        // An actor that does not take it notices that the stream has ended.
        let _ = handle.block_on(async { timeout(FAREWELL_TIMEOUT, replies.send(last)).await });
    }

    /// Passes messages on to the session, until one end is gone.
    async fn pump(&self, mut messages: Streaming<ActorMessage>, inbox: mpsc::Sender<ActorMessage>) {
        loop {
            match messages.message().await {
                Ok(Some(message)) => {
                    if inbox.send(message).await.is_err() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(status) => return self.refuse_malformed(&status),
            }
        }
    }

    fn refuse(&self, kind: &'static str, what: &str) -> Status {
        self.actors.refuse(kind, what);
        Status::failed_precondition(what)
    }

    /// Counts a message that does not decode; a lost connection does not count.
    fn refuse_malformed(&self, status: &Status) {
        if matches!(status.code(), Code::Internal | Code::OutOfRange | Code::InvalidArgument | Code::Unimplemented) {
            self.actors.refuse("malformed", status.message());
        }
    }
}
