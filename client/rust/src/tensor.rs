use half::{bf16, f16};
use tonic::Code;

use crate::{
    v1::{DataType, Tensor},
    Error,
};

/// A Rust type that a tensor's type stands for.
pub trait Element: Copy {
    const DTYPE: DataType;
    const SIZE: usize;
    fn write(self, out: &mut Vec<u8>);
    /// Reads SIZE bytes.
    fn read(bytes: &[u8]) -> Self;
    /// The value of an FP16 or BF16 element; None unless this type is f32, which holds all of them.
    fn widen(_dtype: DataType, _bytes: &[u8]) -> Option<Self> {
        None
    }
}

macro_rules! element {
    ($type:ty, $dtype:ident $(, $widen:item)?) => {
        impl Element for $type {
            const DTYPE: DataType = DataType::$dtype;
            const SIZE: usize = size_of::<$type>();
            fn write(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("SIZE bytes"))
            }
            $($widen)?
        }
    };
}
element!(f64, Fp64);
element!(f16, Fp16);
element!(bf16, Bf16);
element!(i32, Int32);
element!(i64, Int64);
element!(
    f32,
    Fp32,
    fn widen(dtype: DataType, bytes: &[u8]) -> Option<Self> {
        match dtype {
            DataType::Fp16 => Some(f16::read(bytes).to_f32()),
            DataType::Bf16 => Some(bf16::read(bytes).to_f32()),
            _ => None,
        }
    }
);

impl Element for bool {
    const DTYPE: DataType = DataType::Bool;
    const SIZE: usize = 1;
    fn write(self, out: &mut Vec<u8>) {
        out.push(self.into());
    }
    fn read(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }
}

impl Tensor {
    /// Makes a tensor of a shape from its elements in row-major order. The type is that of the elements.
    /// `f16::from_f32` and `bf16::from_f32` round to nearest, ties to even.
    pub fn of<T: Element>(elements: &[T], shape: &[i64]) -> Self {
        let mut data = Vec::with_capacity(elements.len() * T::SIZE);
        elements.iter().for_each(|element| element.write(&mut data));
        Tensor { dtype: T::DTYPE.into(), shape: shape.to_vec(), data: data.into(), region: None }
    }

    /// Returns the elements. FP16 and BF16 can also be read as f32. Returns INVALID_ARGUMENT if the tensor has another
    /// type, or not as many bytes as its shape needs.
    pub fn values<T: Element>(&self) -> Result<Vec<T>, Error> {
        let invalid = |message| Err(Error::new(Code::InvalidArgument, message));
        let size = self.element_size();
        let needed = self.shape.iter().product::<i64>() * size as i64;
        if self.data.len() as i64 != needed {
            return invalid(format!("data is {} bytes, must be {needed}", self.data.len()));
        }
        let elements = self.data.chunks_exact(size.max(1));
        if self.dtype() == T::DTYPE {
            return Ok(elements.map(T::read).collect());
        }
        match elements.map(|bytes| T::widen(self.dtype(), bytes)).collect() {
            Some(values) => Ok(values),
            None => invalid(format!("dtype is {:?}, must be {:?}", self.dtype(), T::DTYPE)),
        }
    }

    /// Bytes of an element; 0 for an unknown type.
    pub(crate) fn element_size(&self) -> usize {
        match self.dtype() {
            DataType::Fp64 | DataType::Int64 => 8,
            DataType::Fp32 | DataType::Int32 => 4,
            DataType::Fp16 | DataType::Bf16 => 2,
            DataType::Bool => 1,
            DataType::Unspecified => 0,
        }
    }
}
