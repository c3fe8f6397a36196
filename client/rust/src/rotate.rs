use bytes::Bytes;
use std::time::Duration;
use tokio::time::{sleep, Instant};
use tonic::Code;

use crate::{
    client::with_deadline,
    v1::{stream_apply_rotary_request::Part, *},
    Client, Error, Pushback,
};

const CHUNK_BYTES: usize = 4 << 20;

/// A transfer of q and k, over as many streams as it takes.
struct Transfer {
    header: ApplyRotaryRequest,
    pending: Vec<RotaryChunk>, // chunks without an answer
    answer: ApplyRotaryResponse,
    q: Vec<u8>,
    k: Vec<u8>,
}

impl Client {
    /// Does what `apply_rotary` does, for tensors of any size: it sends q and k in chunks of about `chunk_bytes` (0:
    /// 4 MiB), which are whole head rows. If a stream ends early, because the server drains or limits its time, the
    /// chunks without an answer go into a new stream, as long as each stream answers at least one.
    pub async fn rotate_in_chunks(
        &self,
        request: ApplyRotaryRequest,
        chunk_bytes: usize,
    ) -> Result<ApplyRotaryResponse, Error> {
        let deadline = self.deadline();
        let mut transfer = Transfer::new(request, if chunk_bytes == 0 { CHUNK_BYTES } else { chunk_bytes });
        loop {
            let before = transfer.pending.len();
            let Err(error) = transfer.stream(self, deadline).await else {
                return Ok(transfer.finish());
            };
            // The server's own time limit for a stream names the byte at which to continue.
            let resumable =
                error.code == Code::Unavailable || (error.code == Code::DeadlineExceeded && error.resume.is_some());
            let wait = match error.pushback {
                Some(Pushback::After(wait)) => wait,
                _ => Duration::from_millis(100),
            };
            if !resumable
                || error.pushback == Some(Pushback::Never)
                || transfer.pending.len() == before
                || deadline.is_some_and(|deadline| Instant::now() + wait >= deadline)
            {
                return Err(error);
            }
            sleep(wait).await;
        }
    }
}

impl Transfer {
    fn new(mut request: ApplyRotaryRequest, chunk_bytes: usize) -> Self {
        let mut pending = Vec::new();
        // Cuts an operand's bytes, which leave the request, into chunks. Returns memory for their answers.
        let mut cut = |name: Operand, operand: &mut Option<RotaryOperand>| {
            let Some(tensor) = operand.as_mut().and_then(|operand| operand.tensor.as_mut()) else {
                return Vec::new();
            };
            let data = std::mem::take(&mut tensor.data);
            let row = (tensor.element_size() * tensor.shape.last().map_or(1, |&width| width as usize)).max(1);
            let size = (chunk_bytes / row).max(1) * row;
            for begin in (0..data.len()).step_by(size) {
                let rows = data.slice(begin..data.len().min(begin + size));
                pending.push(chunk(name, begin, rows));
            }
            vec![0; data.len()]
        };
        let q = cut(Operand::Query, &mut request.q);
        let k = cut(Operand::Key, &mut request.k);
        Transfer { header: request, pending, answer: ApplyRotaryResponse::default(), q, k }
    }

    /// Sends the pending chunks in one stream and removes those that it answers.
    async fn stream(&mut self, client: &Client, deadline: Option<Instant>) -> Result<(), Error> {
        let parts = std::iter::once(Part::Header(self.header.clone()))
            .chain(self.pending.clone().into_iter().map(Part::Chunk)) // clones share the bytes
            .map(|part| StreamApplyRotaryRequest { part: Some(part) });
        let request = with_deadline(tokio_stream::iter(parts), deadline);
        let mut answers = client.stub().stream_apply_rotary(request).await?.into_inner();
        while let Some(answer) = answers.message().await? {
            if answer.info.is_some() {
                self.answer.info = answer.info;
            }
            if let Some(chunk) = answer.chunk {
                self.take(chunk)?;
            }
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        Err(Error::new(Code::Internal, "the server ended the stream before it answered all chunks"))
    }

    fn take(&mut self, answer: RotaryChunk) -> Result<(), Error> {
        let operand = answer.operand();
        let rows = answer.rows.unwrap_or_default();
        let sent = self.pending.iter().position(|chunk| {
            let expected = chunk.rows.as_ref().expect("every chunk has rows");
            chunk.operand() == operand
                && expected.byte_offset == rows.byte_offset
                && expected.data.len() == rows.data.len()
        });
        let Some(index) = sent else {
            return Err(Error::new(Code::Internal, "the server answered a chunk that was not sent"));
        };
        self.pending.remove(index);
        let out = if operand == Operand::Query { &mut self.q } else { &mut self.k };
        let begin = rows.byte_offset as usize;
        out[begin..begin + rows.data.len()].copy_from_slice(&rows.data);
        Ok(())
    }

    fn finish(mut self) -> ApplyRotaryResponse {
        let tensor = |operand: Option<RotaryOperand>, data: Vec<u8>| {
            operand.and_then(|operand| operand.tensor).map(|tensor| Tensor { data: data.into(), ..tensor })
        };
        self.answer.q = tensor(self.header.q, self.q);
        self.answer.k = tensor(self.header.k, self.k);
        self.answer
    }
}

fn chunk(operand: Operand, begin: usize, data: Bytes) -> RotaryChunk {
    RotaryChunk { operand: operand.into(), rows: Some(TensorChunk { byte_offset: begin as i64, data }) }
}
