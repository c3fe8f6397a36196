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

    chart('distribution', data.distribution.map((one, i) => line(one.name, one.points, 'abcdef'[i % 6], i < 6 ? {} : {borderDash: [6, 3]})), {
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

    // Behind the lines: seconds that no figure counts, stalls, and where each step begins.
    const marks = {
      id: 'marks',
      beforeDatasetsDraw: ({ctx, chartArea, scales}) => {
        const {left, right, top, bottom} = chartArea;
        const at = (second) => Math.min(Math.max(scales.x.getPixelForValue(second), left), right);
        const span = (from, to, name, opacity, text, line) => {
          ctx.globalAlpha = opacity;
          ctx.fillStyle = color(name);
          ctx.fillRect(at(from), top, Math.max(at(to) - at(from), 1), bottom - top);
          ctx.globalAlpha = 1;
          const width = ctx.measureText(text).width;
          const begin = Math.min(at(from) + 4, right - width);
          if (line || width + 6 < at(to) - at(from)) ctx.fillText(text, begin, top + 13 + 15 * line);
        };
        ctx.save();
        ctx.font = '12px system-ui, sans-serif';
        for (const [from, to] of data.warm_up) span(from, to, 'quiet', 0.12, 'warm-up', 0);
        data.stalls.slice(0, 20).forEach(({from, to, text}, i) => span(from, to, 'bad', 0.2, text, i < 3 ? 1 + i : 0));
        ctx.fillStyle = ctx.strokeStyle = color('quiet');
        ctx.setLineDash([3, 3]);
        if (data.steps.length > 1 || data.steps[0].from > 0) {
          for (const {name, from, to} of data.steps) {
            ctx.beginPath();
            ctx.moveTo(at(from), top);
            ctx.lineTo(at(from), bottom);
            ctx.stroke();
            if (ctx.measureText(name).width + 6 < at(to) - at(from)) ctx.fillText(name, at(from) + 4, top + 13);
          }
        }
        ctx.restore();
      },
    };
    const seconds = {type: 'linear', min: 0, max: data.seconds, title: {display: !narrow, text: 'seconds'},
      ticks: {maxRotation: 0, includeBounds: false}};
    const at = (second) => {
      const step = data.steps.find(({from, to}) => second >= from && second < to);
      return `second ${number(second)}${step && data.steps.length > 1 ? `, ${step.name}` : ''}`;
    };
    chart('latency', [
      line('max', data.timeline.max, 'b'), line('p99', data.timeline.p99, 'd'), line('p50', data.timeline.p50, 'a'),
    ], {x: seconds, y: times({grace: '30%'})}, at, duration, [marks]);

    const throughput = [
      line('failed', data.timeline.failed, 'bad', {fill: 'origin', backgroundColor: color('bad') + '55'}),
      line('skipped', data.timeline.skipped, 'b', {borderDash: [2, 3]}),
      line('completed', data.timeline.completed, 'a'),
      line('started', data.timeline.started, 'c', {borderWidth: 1.5}),
    ];
    if (data.open_loop) {
      throughput.push(line('intended', data.timeline.intended, 'quiet', {borderDash: [5, 4], borderWidth: 1.5}));
    }
    chart('throughput', throughput, {
      x: seconds,
      y: {min: 0, grace: '15%', title: {display: !narrow, text: 'calls per second'}, ticks: {callback: number}},
    }, at, (value) => `${number(value)}/s`, [marks]);

    const {points: overload, peak} = data.overload;
    if (overload.length) {
      const most = Math.max(...overload.map(({x}) => x));
      chart('overload', [
        line('goodput', overload, 'a', {pointRadius: 5, pointBackgroundColor: color('a')}),
        line('started', overload.map(({x, started}) => ({x, y: started})), 'c', {borderWidth: 1.5, pointRadius: 3}),
        line('peak of the closed loop', [{x: 0, y: peak}, {x: most, y: peak}], 'quiet',
          {borderDash: [6, 4], borderWidth: 1.5}),
      ], {
        x: {type: 'linear', min: 0, max: 1.04 * most, title: {display: !narrow, text: 'intended calls per second'},
          ticks: {maxRotation: 0, includeBounds: false, callback: number}},
        y: {min: 0, suggestedMax: 1.3 * peak, title: {display: !narrow, text: 'calls per second'}, ticks: {callback: number}},
      }, (x) => `${number(x)}/s`, (value) => `${number(value)}/s`);
    }

    const curves = [];
    data.search.forEach(({percentile: name, points, objective}, i) => {
      curves.push(line(name, points, 'adbc'[i % 4], {
        pointRadius: 5, pointHoverRadius: 7, borderWidth: 1.5, pointBorderColor: color('card'),
        pointBackgroundColor: points.map(({verdict}) =>
          color({met: 'good', 'not met': 'bad', unclear: 'quiet'}[verdict] || 'adbc'[i % 4])),
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

  const json = document.getElementById('results').textContent;
  document.getElementById('raw').href = URL.createObjectURL(new Blob([json], {type: 'application/json'}));

  draw();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
})();
