use std::{error::Error as _, fmt, iter::successors, time::Duration};

use prost::Message;
use tonic::{Code, Status, TimeoutExpired};

use crate::v1;

/// How a server wants an UNAVAILABLE call to be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushback {
    After(Duration),
    Never,
}

/// Error of a call. Strings are empty where the server gave no such detail; posenc/v1/error.proto says what they mean.
#[derive(Clone, Debug)]
pub struct Error {
    pub code: Code,
    pub message: String,
    /// OUT_OF_RANGE, MISSING, OVERLOADED, ...; empty: the error is not from the service itself.
    pub reason: String,
    pub field: String,
    pub value: String,
    pub limit: String,
    pub other_field: String,
    /// Place in a config.json that cannot be parsed, from 1.
    pub line: Option<u32>,
    pub column: Option<u32>,
    /// True if work on the request had begun.
    pub started: bool,
    pub pushback: Option<Pushback>,
    /// Rotations in chunks: operand, and its first byte that was not answered.
    pub resume: Option<(String, u64)>,
}

impl Error {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Status::new(code, message).into()
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let info = v1::RichStatus::decode(status.details())
            .unwrap_or_default()
            .details
            .iter()
            .filter(|any| any.type_url == "type.googleapis.com/google.rpc.ErrorInfo")
            .filter_map(|any| v1::ErrorInfo::decode(any.value.as_ref()).ok())
            .find(|info| info.domain == "posenc")
            .unwrap_or_default();
        let text = |key| info.metadata.get(key).cloned().unwrap_or_default();
        Error {
            code: if info.domain.is_empty() { code_of_transport(&status) } else { status.code() },
            message: status.message().to_owned(),
            field: text("field"),
            value: text("value"),
            limit: text("limit"),
            other_field: text("other_field"),
            line: text("line").parse().ok(),
            column: text("column").parse().ok(),
            started: text("started") == "true",
            pushback: pushback(&status),
            resume: text("byte_offset").parse().ok().map(|offset| (text("operand"), offset)),
            reason: info.reason,
        }
    }
}

/// The code that gRPC's other clients have for an error that is not from the service itself. This client never cancels
/// a call that it waits for, so CANCELLED comes from its time limit, or from a server that ended the call or the
/// connection. UNKNOWN, which posenc never answers: the connection broke, or a proxy ended the call without a status.
fn code_of_transport(status: &Status) -> Code {
    let expired = successors(status.source(), |&error| error.source()).any(|error| error.is::<TimeoutExpired>());
    match status.code() {
        Code::Cancelled if expired => Code::DeadlineExceeded,
        Code::Cancelled | Code::Unknown => Code::Unavailable,
        code => code,
    }
}

/// A value that is no number forbids retries, as in gRPC's own clients.
fn pushback(status: &Status) -> Option<Pushback> {
    let value = status.metadata().get("grpc-retry-pushback-ms")?;
    let milliseconds = value.to_str().ok().and_then(|text| text.parse().ok());
    Some(milliseconds.map_or(Pushback::Never, |number| Pushback::After(Duration::from_millis(number))))
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}
