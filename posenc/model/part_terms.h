// The term of the scores that a part's attention has beside q . k, whose weights come with the request.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/model/model.h"
#include "posenc/model/part.h"

namespace posenc {

// INVALID_ARGUMENT, UNSUPPORTED, naming the field of the file that switches the term off, or the type that has none.
absl::Status CheckTerms(const Part& part);

// Of a part that has one.
absl::StatusOr<ModelTerms> TermsOf(Part& part);

}  // namespace posenc
