// What HdrHistogram 2.2.2 for Java wrote of a Histogram(1, 3600000000, 3).
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

// Of the squares, and of these with 777 besides, 5,000,000,000 times.
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

// outputPercentileDistribution of the squares, with 1000.0 as the values' unit; and of nothing.
inline constexpr std::string_view kSquaresHgrm = R"(       Value     Percentile TotalCount 1/(1-Percentile)

       0.000 0.000000000000          2           1.00
       9.807 0.100000000000        101           1.11
      39.615 0.200000000000        201           1.25
      90.047 0.300000000000        302           1.43
     160.127 0.400000000000        402           1.67
     251.007 0.500000000000        503           2.00
     303.615 0.550000000000        553           2.22
     361.215 0.600000000000        603           2.50
     425.215 0.650000000000        654           2.86
     493.055 0.700000000000        704           3.33
     565.759 0.750000000000        754           4.00
     604.159 0.775000000000        779           4.44
     643.583 0.800000000000        804           5.00
     686.079 0.825000000000        830           5.71
     728.063 0.850000000000        855           6.67
     771.071 0.875000000000        880           8.00
     792.575 0.887500000000        892           8.89
     815.615 0.900000000000        905          10.00
     839.167 0.912500000000        918          11.43
     861.695 0.925000000000        930          13.33
     885.759 0.937500000000        943          16.00
     897.023 0.943750000000        949          17.78
     908.287 0.950000000000        955          20.00
     922.111 0.956250000000        962          22.86
     933.375 0.962500000000        968          26.67
     945.151 0.968750000000        974          32.00
     950.783 0.971875000000        977          35.56
     956.927 0.975000000000        980          40.00
     964.607 0.978125000000        984          45.71
     970.239 0.981250000000        987          53.33
     976.383 0.984375000000        990          64.00
     978.431 0.985937500000        991          71.11
     982.527 0.987500000000        993          80.00
     986.111 0.989062500000        995          91.43
     988.159 0.990625000000        996         106.67
     992.255 0.992187500000        998         128.00
     992.255 0.992968750000        998         142.22
     994.303 0.993750000000        999         160.00
     996.351 0.994531250000       1000         182.86
     998.399 0.995312500000       1001         213.33
    1000.447 0.996093750000       1002         256.00
    1000.447 0.996484375000       1002         284.44
    1000.447 0.996875000000       1002         320.00
 3600809.983 0.997265625000       1005         365.71
 3600809.983 1.000000000000       1005
#[Mean    =    11077.746, StdDeviation   =   196364.260]
#[Max     =  3600809.983, Total count    =         1005]
#[Buckets =           22, SubBuckets     =         2048]
)";
inline constexpr std::string_view kNothingHgrm = R"(       Value     Percentile TotalCount 1/(1-Percentile)

#[Mean    =        0.000, StdDeviation   =        0.000]
#[Max     =        0.000, Total count    =            0]
#[Buckets =           22, SubBuckets     =         2048]
)";

}  // namespace posenc::load
