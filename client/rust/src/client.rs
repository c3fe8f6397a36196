use std::{
    future::Future,
    hash::{BuildHasher, Hasher},
    time::Duration,
};

use tokio::time::{sleep, Instant};
use tonic::{
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
    Code, Request, Response, Status, Streaming,
};

use crate::{
    v1::{positional_encoding_service_client::PositionalEncodingServiceClient as Stub, *},
    Error, Pushback,
};

/// TLS by PEM texts. The default trusts the system's CAs and has no client certificate.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// CAs of the server's certificate; empty: the system's.
    pub ca: Vec<u8>,
    /// The client's certificate and its intermediate CAs; empty: none.
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
    /// Name that the server's certificate must have; empty: that of the address.
    pub server_name: String,
}

/// Retries of UNAVAILABLE calls. A push-back of the server replaces the wait. The default is that of posenc's other
/// clients (client/service_config.json).
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    /// Including the first; 1: no retries. Calls with outputs in shared memory need 1: after a lost
    /// connection the first attempt may still write there, also over a later call's.
    pub max_attempts: u32,
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    pub backoff_multiplier: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            max_attempts: 5,
            initial_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            backoff_multiplier: 4.0,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// None: not encrypted, for a server on this machine only.
    pub tls: Option<Tls>,
    pub retry: RetryPolicy,
    /// Limit for a call with all its attempts and waits; also the deadline that the server knows. None: no limit.
    pub timeout: Option<Duration>,
}

/// A connection to one server. Clones share it. Messages have no limit but gRPC's 4 GiB.
#[derive(Clone, Debug)]
pub struct Client {
    stub: Stub<Channel>,
    options: Options,
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident($request:ty) -> $response:ty;)*) => {
        impl Client {
            $($(#[$doc])*
            pub async fn $name(&self, request: $request) -> Result<$response, Error> {
                self.retry(|deadline| {
                    let (mut stub, request) = (self.stub.clone(), with_deadline(request.clone(), deadline));
                    async move { stub.$name(request).await.map(Response::into_inner) }
                })
                .await
            })*
        }
    };
}

methods! {
    get_server_info(GetServerInfoRequest) -> GetServerInfoResponse;
    explain(ExplainRequest) -> ExplainResponse;
    analyze(AnalyzeRequest) -> AnalyzeResponse;
    compare(CompareRequest) -> CompareResponse;
    apply_rotary(ApplyRotaryRequest) -> ApplyRotaryResponse;
    generate_table(GenerateTableRequest) -> GenerateTableResponse;
    generate_embedding(GenerateEmbeddingRequest) -> GenerateEmbeddingResponse;
    generate_bias(GenerateBiasRequest) -> GenerateBiasResponse;
    add_bias(AddBiasRequest) -> AddBiasResponse;
    relative_scores(RelativeScoresRequest) -> RelativeScoresResponse;
    relative_values(RelativeValuesRequest) -> RelativeValuesResponse;
    diagnose(DiagnoseRequest) -> DiagnoseResponse;
    diagnose_bias(DiagnoseBiasRequest) -> DiagnoseBiasResponse;
    /// `message().await?` of the stream returns one tile after another. Only the beginning of a stream is retried.
    stream_table(StreamTableRequest) -> Streaming<StreamTableResponse>;
    /// `message().await?` of the stream returns one tile after another. Only the beginning of a stream is retried.
    stream_bias(StreamBiasRequest) -> Streaming<StreamBiasResponse>;
}

impl Client {
    /// Makes a client of the server at "host:port". It connects with the first call. Must be called in a tokio runtime.
    /// Returns INVALID_ARGUMENT for an address or PEM text that cannot be used.
    pub fn connect(address: &str, options: Options) -> Result<Client, Error> {
        let invalid = |error| Error::new(Code::InvalidArgument, format!("{address}: {error}"));
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(invalid)?
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20));
        if let Some(tls) = &options.tls {
            let mut config = ClientTlsConfig::new();
            config = if tls.ca.is_empty() {
                config.with_native_roots()
            } else {
                config.ca_certificate(Certificate::from_pem(&tls.ca))
            };
            if !tls.certificate.is_empty() {
                config = config.identity(Identity::from_pem(&tls.certificate, &tls.key));
            }
            if !tls.server_name.is_empty() {
                config = config.domain_name(&tls.server_name);
            }
            endpoint = endpoint.tls_config(config).map_err(invalid)?;
        }
        let stub = Stub::new(endpoint.connect_lazy())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        Ok(Client { stub, options })
    }

    /// Returns a client of this connection whose calls have another time limit.
    pub fn with_timeout(&self, timeout: Duration) -> Client {
        let options = Options { timeout: Some(timeout), ..self.options.clone() };
        Client { options, ..self.clone() }
    }

    /// gRPC's own stub, without retries.
    pub fn stub(&self) -> Stub<Channel> {
        self.stub.clone()
    }

    /// Makes attempts until one ends with anything but UNAVAILABLE, or the policy, the server's push-back or the time
    /// limit ends them.
    async fn retry<T, F>(&self, attempt: impl Fn(Option<Instant>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let deadline = self.deadline();
        let policy = &self.options.retry;
        let mut backoff = policy.initial_backoff;
        for number in 1.. {
            let error = match attempt(deadline).await {
                Ok(answer) => return Ok(answer),
                Err(status) => Error::from(status),
            };
            if error.code != Code::Unavailable || number >= policy.max_attempts {
                return Err(error);
            }
            let wait = match error.pushback {
                Some(Pushback::Never) => return Err(error),
                Some(Pushback::After(wait)) => wait,
                None => backoff.mul_f64(jitter()),
            };
            backoff = match error.pushback {
                Some(_) => policy.initial_backoff,
                None => backoff.mul_f64(policy.backoff_multiplier).min(policy.max_backoff),
            };
            if deadline.is_some_and(|deadline| Instant::now() + wait >= deadline) {
                return Err(error);
            }
            sleep(wait).await;
        }
        unreachable!("the loop has no end")
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.options.timeout.map(|timeout| Instant::now() + timeout)
    }
}

pub(crate) fn with_deadline<T>(message: T, deadline: Option<Instant>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(deadline) = deadline {
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    }
    request
}

/// A random number in 0.8 .. 1.2, so that clients do not retry together.
fn jitter() -> f64 {
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    0.8 + 0.4 * (random as f64 / u64::MAX as f64)
}
