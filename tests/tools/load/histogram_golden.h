// Texts that HdrHistogram 2.2.2 for Java wrote of a Histogram(1, 3600000000, 3).
#pragma once

#include <cstdint>
#include <string_view>

#include "tools/load/histogram.h"

namespace posenc::load {

inline Histogram Squares() {
  Histogram histogram;
  histogram.Record(0, 2);
  for (int64_t i = 1; i <= 1000; ++i) histogram.Record(i * i);
  histogram.Record(Histogram::kHighest, 3);
  return histogram;
}

// Texts of Squares(), and of Squares() with 777 recorded 5,000,000,000 times more.
inline constexpr std::string_view kSquares =
    "HISTFAAAAYR4nK3QwUoCURQG4Lm/2SAiIoNImEhISEhIREiISEhISEhISERERERERERERLQoaNGihYsWLVoYtGjRC/QcrXuEHqHj"
    "9da9470zjpAf//nPGQYGnLztOJZlf1n9X0g0643PzotV/e4/GEMINqKIw0EKaWSRQx4FFDGPEsqoooY6GmiihTY2sY1d7OMQxzjF"
    "OS5xjRuGO4Z7hgeGDsMjwxPDM0OX4ZXhjeGd0dsb2CI7ZI8ckCNyQs7IBblChb5WxRKpkWVSJyukQVZJk6yRFlknbXq3wM0KRWFO"
    "mBcWhJKwKJSFCslwWR5pikfK8UjTPFKeR5rhkQqUJP3bMrqUK7oJV3RpV3QZV37FXOJK64krbZZQWk9CaTNHaT2O0mZJPiPE5lPv"
    "YKLGltM77ql3MDFjy+kd99R7UNiX7XHZvi2n6Q4WdQ7efq1u+jWqiMcV8W05TXewqLOXkGD9bebb9OS/hIc+CRt3fQvWw6f3bb5G"
    "j9fld3vP4G3e3Lvp7n6w8R97tFo8";
inline constexpr std::string_view kMany =
    "HISTFAAAAYx4nK3QUUdDYRgH8PP+1zpmZmYyqUxmJpMkmUwmk8lkMplkkiRdJEmSpCi66KKLXXTRRVF00cW+QB+gT9BH6LqP0LN3"
    "b73vu/c9Zyfaz//5P89xOGz0qpV0HPfT6f5CollnfLSendJX98EAQnARRRxJpDCCNDLIIY8pzKCAIkooo4IqaqijgXVsYAs7aF68"
    "tx+zUezjEMc4xTkuGa4ZbhhuGVoMdwz3DA8MTwwvDK8MbUZvr6FJNsk22SV75IAckRNyhnn6ZgkLpEwWSYUskSpZJjWyQupklTTo"
    "3Tw3KUwJ08KMMCsUhDmhKMyTMS7NI43zSBkeKcsj5XikCR4pTxmi/1zGlNJiGtZiGtFiGtPyI6aJK20mrrRdQmkzCaXtkkqbSSpt"
    "N8RnhLh8mh1M1NpyekefZgcTs7ac3tGn2b3CvlyPy/VtOW13sKiz9/ZrdTOvv4p4XBHfltN2B4s6OwkJzu9mv21P/ku475OwdTe3"
    "YN1/et/26+/xuvxu7xm87Zu+2+6nNzb4DdhvXPs=";
inline constexpr std::string_view kNothing = "HISTFAAAAB94nJNpmSzMwMDAyAABzFAazL82eQmD/QeoCABVgwSI";

}  // namespace posenc::load
