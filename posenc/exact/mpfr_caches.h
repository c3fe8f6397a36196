// MPFR keeps constants per thread and forgets to free them when the thread ends.
#pragma once

#include <mpfr.h>

namespace posenc {

// To be called where MPFR is about to be used: frees the calling thread's constants at its end.
inline void FreeMpfrCachesAtThreadEnd() {
  struct Owner {
    ~Owner() { mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); }
  };
  static thread_local Owner owner;
}

}  // namespace posenc
