//! Who may see the pages: everyone on this machine, and others with the token.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, REFERRER_POLICY, SET_COOKIE};
use axum::http::header::{HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use remote::random_hex;

/// Name of the cookie that holds the token.
const TOKEN_COOKIE: &str = "meme_token";
/// Nothing is loaded from elsewhere. The charts have styles of their own.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self'; \
                      connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// The rules for requests.
pub struct Access {
    /// Needed if the server listens on more than loopback.
    token: Option<String>,
    encrypted: bool,
}

impl Access {
    /// Makes a new token if the address can be reached from other machines.
    pub fn new(address: SocketAddr, encrypted: bool) -> Result<Self> {
        let token = (!address.ip().is_loopback()).then(random_hex::<16>).transpose().context("cannot make a token")?;
        Ok(Self { token, encrypted })
    }

    /// The token, if one is needed.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Answers a request that must not pass, or one that brings the token.
    fn answer(&self, uri: &Uri, headers: &HeaderMap) -> Option<Response> {
        let Some(token) = &self.token else {
            // A page elsewhere could give its own name the address of this machine.
            return (!has_local_host(headers)).then(|| StatusCode::FORBIDDEN.into_response());
        };
        let given = |pair: &str, name: &str| pair.trim().strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
        let mut parameters = uri.query().unwrap_or_default().split('&');
        if let Some(brought) = parameters.find_map(|pair| given(pair, "token")) {
            if !same(&brought, token) {
                return Some(unauthorized());
            }
            let secure = if self.encrypted { "; Secure" } else { "" };
            let cookie = format!("{TOKEN_COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000{secure}");
            // To an address without the token, which would stay in the browser's history.
            let headers = [(SET_COOKIE, cookie), (LOCATION, uri.path().to_owned())];
            return Some((StatusCode::SEE_OTHER, headers).into_response());
        }
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let kept = cookies.flat_map(|value| value.split(';')).find_map(|pair| given(pair, TOKEN_COOKIE));
        (!kept.is_some_and(|kept| same(&kept, token))).then(unauthorized)
    }
}

fn unauthorized() -> Response {
    let page = concat!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>meme watch</title>\n<style>",
        include_str!("../web/style.css"),
        "</style></head><body>\n<h1>Token needed</h1>\n\
         <p>Open the address with the token that <code>meme watch</code> has printed.</p>\n</body></html>\n"
    );
    (StatusCode::UNAUTHORIZED, Html(page)).into_response()
}

/// Compares without stopping at the first difference, whose place a timing would give away.
fn same(given: &str, token: &str) -> bool {
    let difference = given.bytes().zip(token.bytes()).fold(0, |difference, (a, b)| difference | (a ^ b));
    given.len() == token.len() && difference == 0
}

fn has_local_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Lets a request pass if it may, and adds the headers that all answers have.
pub async fn check(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let mut response = match access.answer(request.uri(), request.headers()) {
        Some(answer) => answer,
        None => next.run(request).await,
    };
    let headers: [(HeaderName, &str); 4] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
