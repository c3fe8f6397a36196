//! These tests need the servers and the data that tests/integration/clients/conftest.py describes.
use std::{
    env, fs,
    future::Future,
    io::Read,
    net::TcpStream,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    sync::Arc,
    time::Duration,
};

use posenc::{
    bf16, f16,
    v1::{
        positions, rotary_settings, rotary_source, stream_apply_rotary_request::Part, ApplyRotaryRequest, CallHints,
        DataType, GenerateTableRequest, Layout, ModelConfig, Pairing, Positions, RopeParameters, RotaryOperand,
        RotarySettings, RotarySource, StreamApplyRotaryRequest, StreamTableRequest, TableForm, Tensor,
    },
    Client, Element, Error, Options, Pushback, RetryPolicy, Tls,
};
use prost::Message;
use tonic::Code;

fn setting(name: &str) -> String {
    env::var(format!("POSENC_TEST_{name}")).unwrap_or_else(|_| panic!("POSENC_TEST_{name} must be set"))
}

fn data(name: &str) -> Vec<u8> {
    fs::read(PathBuf::from(setting("DATA")).join(name)).unwrap()
}

fn connect(name: &str) -> Client {
    Client::connect(&setting(name), Options::default()).unwrap()
}

fn without_retries() -> Options {
    Options { retry: RetryPolicy { max_attempts: 1, ..Default::default() }, ..Default::default() }
}

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((37 * i + 11) % 257) as f32 - 128.0).map(|x| x / 64.0).collect()
}

fn tensor(dtype: DataType, values: &[f32], shape: &[i64]) -> Tensor {
    match dtype {
        DataType::Bf16 => Tensor::of(&values.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>(), shape),
        _ => Tensor::of(values, shape),
    }
}

fn operand(dtype: DataType, tokens: i64, heads: i64) -> Option<RotaryOperand> {
    let x = values((tokens * heads * 128) as usize);
    Some(RotaryOperand { tensor: Some(tensor(dtype, &x, &[1, tokens, heads, 128])), ..Default::default() })
}

fn settings() -> Option<RotarySource> {
    let parameters = RopeParameters { rope_type: "default".into(), ..Default::default() };
    let settings = RotarySettings {
        frequencies: Some(rotary_settings::Frequencies::RopeParameters(parameters)),
        rotary_dim: Some(128),
        input_pairing: Pairing::HalfSplit.into(),
        ..Default::default()
    };
    Some(RotarySource { source: Some(rotary_source::Source::Settings(settings)) })
}

fn model(config: Vec<u8>) -> Option<RotarySource> {
    let model = ModelConfig { config_json: config.into(), ..Default::default() };
    Some(RotarySource { source: Some(rotary_source::Source::Model(model)) })
}

fn offset(first: i64) -> Option<Positions> {
    Some(Positions { source: Some(positions::Source::Offset(first)), ..Default::default() })
}

fn rotation(dtype: DataType, tokens: i64) -> ApplyRotaryRequest {
    ApplyRotaryRequest {
        rotary: settings(),
        positions: offset(100_000),
        layout: Layout::Bshd.into(),
        q: operand(dtype, tokens, 32),
        ..Default::default()
    }
}

#[tokio::test]
async fn rotation_by_a_config_gives_the_bytes_of_every_other_client() {
    for (name, dtype) in [("rotated.fp32", DataType::Fp32), ("rotated.bf16", DataType::Bf16)] {
        let request = ApplyRotaryRequest { rotary: model(data("config.json")), ..rotation(dtype, 3) };
        let answer = connect("ADDRESS").apply_rotary(request).await.unwrap();
        assert!(answer.q.unwrap().data == data(name), "{name}: other bytes");
    }
}

/// Pair k of a half-split row is rotated by position * 10000^(-k/64). The sum of two float32 products has an error
/// below 3 units of 2^-24 of |x0| + |x1| <= 4; bfloat16 adds half of its own unit.
#[tokio::test]
async fn rotation_is_near_the_formula() {
    for (dtype, bound) in [(DataType::Fp32, 2f64.powi(-20)), (DataType::Bf16, 2f64.powi(-7) + 2f64.powi(-20))] {
        let answer = connect("ADDRESS").apply_rotary(rotation(dtype, 3)).await.unwrap();
        let rotated = answer.q.unwrap().values::<f32>().unwrap();
        let x = values(rotated.len());
        for (i, &got) in rotated.iter().enumerate() {
            let (row, k) = (i / 128 * 128, i % 128 % 64);
            let (sin, cos) = ((100_000 + i / 4096) as f64 * 10000f64.powf(-(k as f64) / 64.0)).sin_cos();
            let (x0, x1) = (f64::from(x[row + k]), f64::from(x[row + k + 64]));
            let want = if i % 128 < 64 { x0 * cos - x1 * sin } else { x1 * cos + x0 * sin };
            assert!((f64::from(got) - want).abs() <= bound, "{dtype:?}: element {i} is {got}, must be {want}");
        }
    }
}

#[test]
fn rounding() {
    fn bits<T: Element>(value: T) -> Vec<u8> {
        Tensor::of(&[value], &[1]).data.to_vec()
    }
    for record in data("rounding").chunks_exact(8) {
        let value = f32::read(&record[..4]);
        assert_eq!(bits(f16::from_f32(value)), record[4..6], "f16 of {value}");
        assert_eq!(bits(bf16::from_f32(value)), record[6..8], "bf16 of {value}");
        for (dtype, stored) in [(DataType::Fp16, &record[4..6]), (DataType::Bf16, &record[6..8])] {
            let tensor = Tensor { dtype: dtype.into(), shape: vec![1], data: stored.to_vec().into(), region: None };
            let wide = tensor.values::<f32>().unwrap()[0];
            let again = if dtype == DataType::Fp16 { bits(f16::from_f32(wide)) } else { bits(bf16::from_f32(wide)) };
            assert_eq!(again, stored, "{dtype:?} is read as {wide}");
        }
    }
}

#[test]
fn tensors_of_every_type() {
    fn there<T: Element + PartialEq + std::fmt::Debug>(values: &[T]) {
        assert_eq!(Tensor::of(values, &[values.len() as i64]).values::<T>().unwrap(), values);
    }
    there(&[1.5f32, -2.0]);
    there(&[1.1f64]);
    there(&[-1i32, 2]);
    there(&[-1i64 << 40]);
    there(&[true, false]);
    there(&[f16::from_f32(0.1)]);
    let message = |error: Error| error.message;
    assert!(Tensor::of(&[1f32], &[1]).values::<f64>().map_err(message).unwrap_err().contains("must be Fp64"));
    assert!(Tensor::of(&[1f32], &[2]).values::<f32>().map_err(message).unwrap_err().contains("must be 8"));
}

/// Makes one call of POSENC_TEST_DATA/calls and compares all fields of the answers.
async fn same<Q: Message + Default, A: Message + Default + PartialEq + std::fmt::Debug>(
    path: &str,
    call: impl AsyncFn(Q) -> Result<Vec<A>, Error>,
) {
    let answers = call(Q::decode(data(&format!("{path}/request")).as_slice()).unwrap()).await.unwrap();
    for (i, got) in answers.iter().enumerate() {
        let want = A::decode(data(&format!("{path}/answer-{i}")).as_slice()).unwrap();
        assert!(*got == want, "{path}: answer {i} is {got:?}, must be {want:?}");
    }
    assert!(!PathBuf::from(setting("DATA")).join(format!("{path}/answer-{}", answers.len())).exists());
}

/// Compares the answers of unary calls and streams of tiles by the method's name.
macro_rules! dispatch {
    ($client:ident, $name:expr, $path:expr, { $($unary:literal $method:ident)* }, { $($stream:literal $tiles:ident)* }) => {
        match $name {
            $($unary => same($path, async |request| Ok(vec![$client.$method(request).await?])).await,)*
            $($stream => same($path, async |request| {
                let mut stream = $client.$tiles(request).await?;
                let mut tiles = Vec::new();
                while let Some(tile) = stream.message().await? {
                    tiles.push(tile);
                }
                Ok(tiles)
            }).await,)*
            other => panic!("{other} is not called"),
        }
    };
}

#[tokio::test]
async fn every_call() {
    let client = connect("ADDRESS");
    let mut called = std::collections::HashSet::new();
    for entry in fs::read_dir(PathBuf::from(setting("DATA")).join("calls")).unwrap() {
        let entry = entry.unwrap().file_name().into_string().unwrap();
        let (path, name) = (format!("calls/{entry}"), entry.split_once('-').unwrap().1.to_owned());
        dispatch!(client, name.as_str(), &path, {
            "Explain" explain "Analyze" analyze "Compare" compare "ApplyRotary" apply_rotary
            "GenerateTable" generate_table "GenerateEmbedding" generate_embedding "GenerateBias" generate_bias
            "AddBias" add_bias "RelativeScores" relative_scores "RelativeValues" relative_values
            "Diagnose" diagnose "DiagnoseBias" diagnose_bias "GetServerInfo" limits_of_server
        }, { "StreamTable" stream_table "StreamBias" stream_bias });
        called.insert(name);
    }
    assert_eq!(called.len(), 15, "all methods but StreamApplyRotary: {called:?}");
}

/// GetServerInfo without what changes from call to call.
trait LimitsOfServer {
    fn limits_of_server(
        &self,
        request: posenc::v1::GetServerInfoRequest,
    ) -> impl Future<Output = Result<Limits, Error>>;
}

/// A GetServerInfoResponse of which only the limits are read.
#[derive(Clone, PartialEq, Message)]
struct Limits {
    #[prost(message, optional, tag = "9")]
    limits: Option<posenc::v1::ServerLimits>,
}

impl LimitsOfServer for Client {
    async fn limits_of_server(&self, request: posenc::v1::GetServerInfoRequest) -> Result<Limits, Error> {
        Ok(Limits { limits: self.get_server_info(request).await?.limits })
    }
}

#[tokio::test]
async fn a_refusal_has_details() {
    let config = String::from_utf8(data("config.json")).unwrap().replace("500000.0", "-1");
    let request = ApplyRotaryRequest { rotary: model(config.into_bytes()), ..rotation(DataType::Fp32, 1) };
    let refused = connect("ADDRESS").apply_rotary(request).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (Code::InvalidArgument, "OUT_OF_RANGE"));
    assert_eq!((refused.field.as_str(), refused.value.as_str()), ("rotary.model.config_json.rope_theta", "-1"));
    assert!(refused.limit.starts_with("must be") && !refused.started, "{refused:?}");
}

#[tokio::test]
async fn a_busy_server_says_when_to_try_again() {
    let client = Client::connect(&setting("BUSY"), without_retries()).unwrap();
    let mut header = rotation(DataType::Fp32, 1);
    header.q.as_mut().unwrap().tensor.as_mut().unwrap().data.clear();
    let (parts, received) = tokio::sync::mpsc::channel(1);
    parts.send(StreamApplyRotaryRequest { part: Some(Part::Header(header)) }).await.unwrap();
    let received = tokio_stream::wrappers::ReceiverStream::new(received);
    let mut stream = client.stub().stream_apply_rotary(received).await.unwrap().into_inner();
    stream.message().await.unwrap(); // from now on the server has its one call
    let refused = client.apply_rotary(rotation(DataType::Fp32, 1)).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str(), refused.started), (Code::Unavailable, "OVERLOADED", false));
    assert_eq!(refused.pushback, Some(Pushback::After(Duration::from_millis(100))));
    drop(parts);
}

fn wishing(wish: &str, request: ApplyRotaryRequest) -> ApplyRotaryRequest {
    let request_id = format!("{wish} rust {:?}", std::time::SystemTime::now());
    ApplyRotaryRequest { hints: Some(CallHints { request_id, ..Default::default() }), ..request }
}

#[tokio::test]
async fn refused_calls_are_retried() {
    let client = connect("REFUSING");
    let request = wishing("refuse 4 pushback 1", rotation(DataType::Fp32, 512)); // 8 MiB
    client.apply_rotary(request).await.unwrap();
    let request = wishing("refuse 1 pushback -1", rotation(DataType::Fp32, 1));
    assert_eq!(client.apply_rotary(request).await.unwrap_err().pushback, Some(Pushback::Never));
    let request = wishing("refuse 1 pushback 3600000", rotation(DataType::Fp32, 1));
    let late = client.with_timeout(Duration::from_secs(60)).apply_rotary(request).await.unwrap_err();
    assert_eq!(late.pushback, Some(Pushback::After(Duration::from_secs(3600))), "beyond the time limit");
    let request = wishing("refuse 1 pushback 1", rotation(DataType::Fp32, 1));
    let client = Client::connect(&setting("REFUSING"), without_retries()).unwrap();
    assert_eq!(client.apply_rotary(request).await.unwrap_err().code, Code::Unavailable);
    let client = connect("ADDRESS").with_timeout(Duration::from_nanos(1));
    assert_eq!(client.apply_rotary(rotation(DataType::Fp32, 1)).await.unwrap_err().code, Code::DeadlineExceeded);
}

/// Connecting to RESTART stops the server at RESTARTING and starts another one there; the connection ends when it serves.
#[tokio::test(flavor = "multi_thread")]
async fn restarts_of_the_server_fail_no_call() {
    let done = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (done, client) = (done.clone(), connect("RESTARTING"));
            tokio::spawn(async move {
                let mut calls = 0;
                while !done.load(Ordering::Relaxed) {
                    client.apply_rotary(rotation(DataType::Fp32, 1 + 63 * (calls % 2))).await.unwrap();
                    calls += 1;
                }
            })
        })
        .collect();
    for _ in 0..3 {
        let restart = || TcpStream::connect(setting("RESTART")).unwrap().read_to_end(&mut Vec::new()).unwrap();
        tokio::task::spawn_blocking(restart).await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
}

#[test]
fn the_retry_policy_is_that_of_all_clients() {
    let config: serde_json::Value = serde_json::from_str(include_str!("../../service_config.json")).unwrap();
    let expected = &config["methodConfig"][0]["retryPolicy"];
    let RetryPolicy { max_attempts, initial_backoff, max_backoff, backoff_multiplier } = RetryPolicy::default();
    assert_eq!(expected["maxAttempts"], max_attempts);
    assert_eq!(expected["initialBackoff"], format!("{}s", initial_backoff.as_secs_f64()));
    assert_eq!(expected["maxBackoff"], format!("{}s", max_backoff.as_secs_f64()));
    assert_eq!(expected["backoffMultiplier"].as_f64(), Some(backoff_multiplier));
    assert_eq!(expected["retryableStatusCodes"], serde_json::json!(["UNAVAILABLE", "UNKNOWN"]));
}

fn table(rows: i64, dtype: DataType, form: TableForm) -> GenerateTableRequest {
    GenerateTableRequest {
        rotary: settings(),
        positions: offset(0),
        count: Some(rows),
        dtype: dtype.into(),
        form: form.into(),
        ..Default::default()
    }
}

/// The last bit of a float64 angle is below 2^-35 at position 131,071.
#[tokio::test]
async fn an_answer_of_64_mib() {
    let rows = 131_072;
    let request = table(rows, DataType::Fp32, TableForm::HalfWidth);
    let answer = connect("ADDRESS").generate_table(request).await.unwrap();
    let (cos, sin) = (answer.cos.unwrap().values::<f32>().unwrap(), answer.sin.unwrap().values::<f32>().unwrap());
    assert_eq!(4 * (cos.len() + sin.len()), 64 << 20);
    for row in (0..rows as usize).step_by(4099) {
        for k in 0..64 {
            let (s, c) = (row as f64 * 10000f64.powf(-(k as f64) / 64.0)).sin_cos();
            let error = (f64::from(cos[64 * row + k]) - c).abs().max((f64::from(sin[64 * row + k]) - s).abs());
            assert!(error <= 2f64.powi(-25) + 1e-9, "row {row}, pair {k}: error {error}");
        }
    }
}

#[tokio::test]
async fn chunks_give_the_bytes_of_one_call() {
    for dtype in [DataType::Fp32, DataType::Bf16] {
        let request = ApplyRotaryRequest { k: operand(dtype, 40, 8), ..rotation(dtype, 40) };
        let whole = connect("ADDRESS").apply_rotary(request.clone()).await.unwrap();
        // The second one ends the first stream early.
        for peer in ["ADDRESS", "REFUSING"] {
            let request = wishing("refuse 1 pushback 1", request.clone());
            let in_chunks = connect(peer).rotate_in_chunks(request, 100_000).await.unwrap();
            assert!(whole.q == in_chunks.q && whole.k == in_chunks.k, "{dtype:?}, {peer}: other bytes");
            assert_eq!(in_chunks.info.unwrap().rotary_dim, 128);
        }
    }
}

#[tokio::test]
async fn tiles_give_the_bytes_of_one_call() {
    let request = table(100, DataType::Bf16, TableForm::Duplicated);
    let whole = connect("ADDRESS").generate_table(request.clone()).await.unwrap().cos.unwrap();
    let request = StreamTableRequest { table: Some(request), rows_per_tile: Some(7) };
    let mut stream = connect("ADDRESS").stream_table(request).await.unwrap();
    let mut cos = Vec::new();
    while let Some(tile) = stream.message().await.unwrap() {
        assert_eq!(tile.row_begin as usize, cos.len() / 256);
        cos.extend_from_slice(&tile.cos.unwrap().data);
    }
    assert!(whole.data == cos, "other bytes");
}

#[tokio::test]
async fn tls_with_a_clients_certificate() {
    let mine = Tls {
        ca: data("ca.pem"),
        certificate: data("client.pem"),
        key: data("client.key"),
        server_name: "server.example".into(),
    };
    let connect = |tls: Tls| {
        let options = Options { tls: Some(tls), ..without_retries() };
        Client::connect(&setting("TLS"), options).unwrap()
    };
    connect(mine.clone()).apply_rotary(rotation(DataType::Fp32, 1)).await.unwrap();
    let no_certificate = Tls { ca: mine.ca.clone(), ..Default::default() };
    for wrong in [no_certificate, Tls { server_name: "other.example".into(), ..mine }] {
        let refused = connect(wrong).apply_rotary(rotation(DataType::Fp32, 1)).await.unwrap_err();
        assert!(refused.code == Code::Unavailable && refused.reason.is_empty(), "{refused:?}");
    }
}
