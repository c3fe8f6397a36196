'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const narrow = matchMedia('(max-width: 500px)').matches;
  let charts = [];

  // Milliseconds, in the unit that they are read best in.
  const duration = (ms) => ms >= 1000 ? `${+(ms / 1000).toPrecision(4)} s`
    : ms >= 1 ? `${+ms.toPrecision(4)} ms` : `${+(ms * 1000).toPrecision(4)} µs`;
  const number = (value) => (+value.toPrecision(4)).toLocaleString('en');
  // 1 / (1 - p) as a percentile: as many digits as it takes nines.
  const percentile = (x) => `${+(100 - 100 / x).toFixed(Math.max(0, Math.ceil(Math.log10(x)) - 1))} %`;

  // Light or dark is the reader's choice, and may change while the page is open.
  function draw() {
    charts.forEach((chart) => chart.destroy());
    charts = [];
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue('--' + name).trim();
    Chart.defaults.color = color('quiet');
    Chart.defaults.borderColor = color('line');
    Chart.defaults.font.family = 'system-ui, sans-serif';
    Chart.defaults.animation = false;

    const line = (label, points, name, more) => Object.assign({
      label, data: points, borderColor: color(name), backgroundColor: color(name), borderWidth: 2, pointRadius: 0,
      pointHitRadius: 8,
    }, more);
    const times = (more) => Object.assign({
      type: 'logarithmic',
      title: {display: !narrow, text: 'latency'},
      ticks: {
        maxTicksLimit: 9,
        callback: (value) => /^[125]/.test(value.toExponential()) ? duration(value) : null,
      },
    }, more);

    function chart(id, datasets, scales, title, value, plugins) {
      const canvas = document.getElementById(id);
      if (!canvas) return;
      charts.push(new Chart(canvas, {
        type: 'line',
        data: {datasets},
        options: {
          parsing: false, normalized: true, maintainAspectRatio: false,
          interaction: {mode: 'nearest', axis: 'x', intersect: false},
          scales,
          plugins: {
            legend: {labels: {boxWidth: 14, boxHeight: 2}},
            tooltip: {callbacks: {
              title: (items) => items.length ? title(items[0].parsed.x) : '',
              label: (item) => ` ${item.dataset.label}: ${value(item.parsed.y)}`,
            }},
          },
        },
        plugins: plugins || [],
      }));
    }

    chart('distribution', data.distribution.map((one, i) => line(one.name, one.points, 'abcd'[i])), {
      x: {
        type: 'logarithmic', min: 1, title: {display: !narrow, text: 'percentile'},
        afterBuildTicks: (axis) => {
          axis.ticks = [2, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9].filter((x) => x <= axis.max)
            .map((value) => ({value}));
        },
        ticks: {callback: percentile, maxRotation: 0, autoSkip: false},
      },
      y: times(),
    }, percentile, duration);

    // Behind the seconds that no figure counts.
    const warmUp = {
      id: 'warm-up',
      beforeDatasetsDraw: ({ctx, chartArea, scales}) => {
        ctx.save();
        for (const [from, to] of data.warm_up) {
          const left = Math.max(scales.x.getPixelForValue(from), chartArea.left);
          const right = Math.min(scales.x.getPixelForValue(to), chartArea.right);
          ctx.globalAlpha = 0.12;
          ctx.fillStyle = color('quiet');
          ctx.fillRect(left, chartArea.top, right - left, chartArea.bottom - chartArea.top);
          ctx.globalAlpha = 1;
          ctx.font = '12px system-ui, sans-serif';
          if (ctx.measureText('warm-up').width < right - left) ctx.fillText('warm-up', left + 4, chartArea.top + 14);
        }
        ctx.restore();
      },
    };
    const seconds = {type: 'linear', min: 0, max: data.seconds, title: {display: !narrow, text: 'seconds'},
      ticks: {maxRotation: 0, includeBounds: false}};
    const at = (second) => `second ${number(second)}`;
    chart('latency', [
      line('max', data.timeline.max, 'b'), line('p99', data.timeline.p99, 'd'), line('p50', data.timeline.p50, 'a'),
    ], {x: seconds, y: times()}, at, duration, [warmUp]);

    const throughput = [
      line('failed or skipped', data.timeline.errors, 'bad', {fill: 'origin', backgroundColor: color('bad') + '55'}),
      line('succeeded', data.timeline.achieved, 'a'),
    ];
    if (data.open_loop) {
      throughput.push(line('intended', data.timeline.intended, 'quiet', {borderDash: [5, 4], borderWidth: 1.5}));
    }
    chart('throughput', throughput, {
      x: seconds,
      y: {min: 0, grace: '5%', title: {display: !narrow, text: 'calls per second'}, ticks: {callback: number}},
    }, at, (value) => `${number(value)}/s`, [warmUp]);

    const curves = [];
    data.search.forEach(({percentile: name, points, objective}, i) => {
      curves.push(line(name, points, 'adbc'[i % 4], {
        pointRadius: 5, pointHoverRadius: 7, borderWidth: 1.5, pointBorderColor: color('card'),
        pointBackgroundColor: points.map(({held}) => color(held === false ? 'bad' : held ? 'good' : 'adbc'[i % 4])),
      }));
      if (!objective || !points.length) return;
      curves.push(line(`objective: ${name} ≤ ${duration(objective)}`,
        [points[0], points[points.length - 1]].map(({x}) => ({x, y: objective})), 'adbc'[i % 4],
        {borderDash: [6, 4], borderWidth: 1.5}));
    });
    const highest = Math.max(0, ...data.search.map(({objective}) => objective || 0));
    const rates = data.search.flatMap(({points}) => points.map(({x}) => x));
    const least = Math.min(...rates), most = Math.max(...rates), wide = most > 8 * least;
    const space = wide ? Math.pow(most / least, 0.04) : 0.04 * (most - least) || 1;
    chart('search', curves, {
      x: {
        type: wide ? 'logarithmic' : 'linear',
        min: wide ? least / space : Math.max(0, least - space), max: wide ? most * space : most + space,
        title: {display: !narrow, text: data.open_loop ? 'intended calls per second' : 'achieved calls per second'},
        ticks: {
          maxRotation: 0, includeBounds: false,
          callback: (value) => !wide || /^[125]/.test(value.toExponential()) ? number(value) : null,
        },
      },
      y: times(highest ? {suggestedMax: 1.5 * highest} : {}),
    }, (x) => `${number(x)}/s`, duration);
  }

  draw();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
})();
