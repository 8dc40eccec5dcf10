//! The addresses of the site, and what each answers.

use std::sync::Arc;

use anyhow::Result;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use serde::Deserialize;
use serde_json::json;
use train::run::RunFiles;

use super::access::{self, Access};
use super::live::LiveRuns;
use super::run_page;
use super::video::Recorder;

/// What the pages show.
pub struct Site {
    pub runs: LiveRuns,
    pub recorder: Recorder,
}

/// A run, and what the page already has of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    name: String,
    /// Number of the charts that the page shows.
    #[serde(default)]
    version: Option<u64>,
}

/// Rejects unknown parameters and unreadable values: they name nothing that exists.
impl<S: Sync> FromRequestParts<S> for Which {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let found = Query::try_from_uri(&parts.uri).map(|Query(which)| which);
        found.map_err(|_| failure(StatusCode::NOT_FOUND, "there is no such page"))
    }
}

/// Returns the site behind its rules of access.
pub fn router(site: Arc<Site>, access: Arc<Access>) -> Router {
    let html = "text/html; charset=utf-8";
    Router::new()
        .route("/", asset(html, include_str!("../web/watch.html")))
        .route(
            "/style.css",
            asset("text/css", concat!(include_str!("../web/style.css"), include_str!("../web/watch.css"))),
        )
        .route("/watch.js", asset("text/javascript", include_str!("../web/watch.js")))
        .route("/api/runs", get(list))
        .route("/api/run", get(details))
        .route("/api/charts", get(charts))
        .route("/api/video", get(video))
        .route("/api/record", post(record))
        .with_state(site)
        .layer(middleware::from_fn_with_state(access, access::check))
}

fn asset(kind: &'static str, text: &'static str) -> axum::routing::MethodRouter<Arc<Site>> {
    get(move || async move { ([(CONTENT_TYPE, kind)], text) })
}

/// Runs something that reads files, and turns its error into an answer.
async fn blocking(work: impl FnOnce() -> Result<Response> + Send + 'static) -> Response {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => failure(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
        Err(_) => failure(StatusCode::INTERNAL_SERVER_ERROR, "the server failed to answer"),
    }
}

fn failure(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({"error": error}))).into_response()
}

/// Runs something about a run, which must exist below the directory of runs.
async fn about_run(site: Arc<Site>, which: Which, work: fn(&Site, &RunFiles, &Which) -> Result<Response>) -> Response {
    blocking(move || match site.runs.find(&which.name) {
        Some(run) => work(&site, &run, &which),
        None => Ok(failure(StatusCode::NOT_FOUND, "there is no such run")),
    })
    .await
}

async fn list(State(site): State<Arc<Site>>) -> Response {
    blocking(move || Ok(Json(site.runs.list()?).into_response())).await
}

async fn details(State(site): State<Arc<Site>>, which: Which) -> Response {
    about_run(site, which, |site, run, which| {
        Ok(Json(run_page::details(run, &which.name, &site.runs, &site.recorder)?).into_response())
    })
    .await
}

async fn charts(State(site): State<Arc<Site>>, which: Which) -> Response {
    about_run(site, which, |site, run, which| {
        Ok(match site.runs.charts(run, &which.name, which.version)? {
            Some(charts) => Json(charts).into_response(),
            None => StatusCode::NO_CONTENT.into_response(),
        })
    })
    .await
}

async fn video(State(site): State<Arc<Site>>, which: Which) -> Response {
    about_run(site, which, |site, run, which| match site.recorder.newest(run, &which.name) {
        Some(video) => Ok(([(CONTENT_TYPE, "image/gif")], std::fs::read(video.path)?).into_response()),
        None => Ok(failure(StatusCode::NOT_FOUND, "there is no video of this run")),
    })
    .await
}

async fn record(State(site): State<Arc<Site>>, which: Which) -> Response {
    about_run(site, which, |site, run, which| match site.recorder.record(run, &which.name) {
        Ok(()) => Ok(StatusCode::ACCEPTED.into_response()),
        Err(error) => Ok(failure(StatusCode::CONFLICT, &error.to_string())),
    })
    .await
}
