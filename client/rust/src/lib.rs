//! Calls a posenc-server, which computes positional encodings for attention.
//!
//! [`v1`] has the messages, generated from the proto files. [`Client`] calls the service with retries and without
//! gRPC's limit of 4 MiB a message. [`v1::Tensor::of`] and [`v1::Tensor::values`] convert tensors, and [`Error`] has
//! the details of a refusal.

#![allow(clippy::result_large_err)] // Error is as large as gRPC's own Status

mod client;
mod error;
mod rotate;
mod tensor;

/// The API's messages; `positional_encoding_service_client` has gRPC's own stub.
#[allow(clippy::all, rustdoc::all)]
pub mod v1 {
    include!("gen/posenc.v1.rs");
}

pub use client::{Client, Options, RetryPolicy, Tls};
pub use error::{Error, Pushback};
pub use half::{bf16, f16};
pub use tensor::Element;
