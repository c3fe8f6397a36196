// NumPy's .npy files, format versions 1.0 and 2.0
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): a magic string, the version, the header's
// length, and a Python dict literal {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}, padded to 64 bytes.
//
// Supported: types f2 f4 f8 i4 i8 b1, little-endian, C order, one array per file. The format has no BF16.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "posenc/base/input_file.h"
#include "tools/files/tensor_header.h"

namespace posenc {

// Reads the header; the rest of the file is the data. Returns INVALID_ARGUMENT without the file's name if the file is
// invalid.
absl::StatusOr<StoredTensor> ReadNpyHeader(const InputFile& file);

// Returns the bytes before the data, or INVALID_ARGUMENT for BF16.
absl::StatusOr<std::string> MakeNpyHeader(const TensorHeader& header);

}  // namespace posenc
