#include "server/core/short_slices.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace posenc::server {

void AskForShortSlices() {
  // The kernel's struct sched_attr, whose headers differ between systems (sched_setattr(2)).
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns;  // of a thread with the usual policy: its slice; 0 for the kernel's choice, milliseconds
    uint64_t deadline_ns, period_ns;
  } attributes = {};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  attributes.runtime_ns = 200'000;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace posenc::server
