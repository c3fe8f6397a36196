//! Rotates a query by the RoPE of a model, on a posenc-server: rotate ADDRESS CONFIG_JSON
use posenc::{
    v1::{
        positions, rotary_source, ApplyRotaryRequest, Layout, ModelConfig, Positions, RotaryOperand, RotarySource,
        Tensor,
    },
    Client, Options,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [address, config]: [String; 2] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "usage: rotate ADDRESS CONFIG_JSON")?;
    let q = vec![1f32; 3 * 32 * 128]; // one sequence, three tokens, 32 heads of 128 elements
    let model = ModelConfig { config_json: std::fs::read(config)?.into(), ..Default::default() };
    let request = ApplyRotaryRequest {
        rotary: Some(RotarySource { source: Some(rotary_source::Source::Model(model)) }),
        positions: Some(Positions { source: Some(positions::Source::Offset(100_000)), ..Default::default() }),
        layout: Layout::Bshd.into(),
        q: Some(RotaryOperand { tensor: Some(Tensor::of(&q, &[1, 3, 32, 128])), ..Default::default() }),
        ..Default::default()
    };
    match Client::connect(&address, Options::default())?.apply_rotary(request).await {
        Ok(answer) => println!("{:?}", &answer.q.unwrap_or_default().values::<f32>()?[..4]),
        Err(error) if !error.field.is_empty() => {
            return Err(format!("field {} is {}: {}", error.field, error.value, error.limit).into())
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
