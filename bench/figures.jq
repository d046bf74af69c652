# Functions for the jq expressions in README.md and RESULTS.md, which say from where their numbers are. To look at one:
#   jq -L bench 'include "figures"; load("40 B JSON, 64") | cpu' bench/results/2026-11-26-path.json

def median: sort | length as $n | if $n % 2 == 1 then .[($n - 1) / 2] else (.[$n / 2 - 1] + .[$n / 2]) / 2 end;

# "median (least–most)" of an array.
def spread: median, min, max;

# Quantile by nearest rank: the least value that the fraction $q of them does not exceed.
def quantile($q): sort | .[(([(length * $q | ceil), 1] | max) - 1)];

# The whole path (cmd/compare). A load has pairs of runs; ratios are taken within a pair.
def load($name): .scenarios[] | select(.name == $name);
def ratio(value): [.pairs[] | (.xebec | value) / (.floor | value)] | spread;
def cpu: ratio(.cpu_us_per_request);
def p50: ratio(.p50_us);
def rates: ([.pairs[].floor.rps] | median), ([.pairs[].xebec.rps] | median);

# The ring (cmd/ring): messages of so many bytes, as often in flight.
def messages($bytes; $in_flight): .loads[] | select(.load.request_bytes == $bytes and .load.in_flight == $in_flight);
def against_socket(way; value): [.rounds[] | (way | value) / (.socket | value)] | median;

# The paper's figures 3 to 5 (cmd/figures).
def container($model): .figure4[] | select(.model == $model);
def strategy($name): .strategies[] | select(.name == $name);
def qps: [.rounds[].qps] | median;
def best_static: [.strategies[] | select((.name | startswith("static")) and (.finals | length) > 0)][0];
def against_best($name): best_static as $best | [(strategy($name).finals | map(.qps)), ($best.finals | map(.qps))] | transpose | map(.[0] / .[1]) | median;
def largest($model): .figure3[] | select(.model == $model) | .largest_within_objective;

# Overload (cmd/overload).
def setting($name): [.rounds[] | select(.setting == $name)];
def in_time: .in_time / (.in_time + .late + .expired + .refused + .defaults + .others);
def overload($factor): .overloads[] | select(.factor == $factor);

# Changes of versions (cmd/lifecycle).
def changes($workload; $load; $kind): [.rollouts[] | select(.workload == $workload and .load == $load) | .changes[] | select(.kind == $kind)];
def slower: map(.p99_ms / .quiet_p99_ms) | spread;
def failures: map(.failed) | add;

# Batches of steps (cmd/step).
def places($n): .settings[] | select(.places == $n);

# Learning (cmd/learning).
def percent: . * 100;
def images($title): .figure7[] | select(.title == $title);
def policy($name): .policies[] | select(.name == $name);
def best_model: [.models[].error] | min;

# The cache (cmd/cache).
def hit_ratio($workload; $sizes; $mebibytes): .ratios[] | select(.workload == $workload and .sizes == $sizes and .max_mebibytes == $mebibytes) | .hit_ratio | .xebec, .otter;
def cost($hit; $bytes; $parallel): .costs[] | select(.hit == $hit and .input_bytes == $bytes and .parallel == $parallel) | ([.rounds[].xebec.ns] | median), ([.rounds[].otter.ns] | median);

# Capacity (cmd/capacity).
def cold($name): .cold_starts[] | select(.name == $name) | .ms;
def deciding($what): [.decisions[] | select(.what == $what)];

# The autoscaler in simulation (cmd/sim).
def scaler($trace; $name): .[] | select(.trace == $trace and .scaler == $name);
def more($trace; $name): (scaler($trace; "xebec").replica_seconds / scaler($trace; $name).replica_seconds - 1) * 100;
def simulated($trace): more($trace; "knative-rate"), more($trace; "knative"), (scaler($trace; "xebec", "knative-rate", "knative") | .missed);
def recovered($trace): scaler($trace; "xebec", "knative-rate", "knative") | .recovery_s;
def agreeing: .policies[0].groups | max_by(.agree);
def disagreeing: .policies[0].groups | (max_by(.agree).agree) as $all | map(select(.agree < $all)) | ((map(.share * .error) | add) / (map(.share) | add));
def step_row: .ideal as $ideal
  | ([.pairs[].whole.requests_per_s] | median), ([.pairs[].step.requests_per_s] | median),
    ([.pairs[] | .step.requests_per_s / .whole.requests_per_s] | spread), $ideal.step.requests_per_s / $ideal.whole.requests_per_s,
    ([.pairs[].whole.requests_per_s / $ideal.whole.requests_per_s] | median), ([.pairs[].step.requests_per_s / $ideal.step.requests_per_s] | median),
    ([.pairs[].whole.first_p50_ms] | median), ([.pairs[].step.first_p50_ms] | median);

# The core in one process (cmd/core), by CPU time on one core.
def benchmark($part; $name): .[$part][] | select(.name | endswith($name));
def millions($part; $name): benchmark($part; $name).cpu_ns | map(1e3 / .);
def plan($load): benchmark("plans"; "/" + $load).cpu_ns | map(. / 1e6);

# Geometric mean of ratios with Student's interval of 95 % of their logarithms: value, low, high (of 2 to 10 ratios).
def geometric: map(log) as $l | ($l | add / length) as $m | ($l | length) as $n
  | ([null, null, 12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622][$n] * (($l | map(. - $m) | map(. * .) | add) / ($n - 1) / $n | sqrt)) as $off
  | ($m, $m - $off, $m + $off) | exp;
def quotients($a; $b): [$a, $b] | transpose | map(.[0] / .[1]);
def rates_of($name): strategy($name).rounds | map(.qps);
def finals_of($name): strategy($name).finals | map(.qps);
def beside_best($name): quotients(finals_of($name); best_static.finals | map(.qps)) | geometric;
def late_of($name): strategy($name) | (.late_share * .batches | round), .batches;

# Many orders of data sets (cmd/learning -orders). "value ± half" of an interval, in percent.
def order($name): .scenarios[] | select(.name == $name);
def run($name): (.runs[], .sweep[]?) | select(.name == $name);
def pm: .value * 100, (.high - .value) * 100;
def beside_vote: run("exp4") | (.error, .beside_vote, .beside_best | pm);
def papers: run("exp4 without vote and boost", "the paper's Exp4, eta 0.01", "the paper's Exp4, eta 0.1") | .beside_vote | pm;

# Learning over HTTP (cmd/learning): an ensemble beside its best model; a policy in figure 8; a policy in the second half of figure 10.
def beside_single($name): (policy($name).error, best_model | percent), (policy($name).fewer_than_best | pm);
def degraded($name): policy($name) | (.error | percent), (.beside_best_static | pm);
def half($name): policy($name) | (.error_second_half | percent), (.second_half_beside_reported | pm);

# More than digits (cmd/learning -sets).
def in_set: run("best model in hindsight", "plain vote", "exp4", "the paper's Exp4, eta 0.01", "stacking", "exp3", "the paper's Exp3, eta 0.01", "ucb1", "linucb by the input") | .error | pm;
def beside_exp4: (run("exp4") | .beside_vote, .beside_best | pm), (run("the paper's Exp4, eta 0.01", "stacking") | .beside_exp4 | pm), (run("exp3") | .beside_best | pm);

# Other servers (cmd/peers). A ratio is taken within a round.
def of_peer($load; $name): [.measurements[] | select(.load == $load) | .samples[] | select(.peer == $name)] | sort_by(.round);
def beside_xebec($load; $name; value): of_peer($load; "xebec") as $x
  | [of_peer($load; $name)[] | . as $s | ($s | value) / ($x[] | select(.round == $s.round) | value)] | geometric;
def own($load): of_peer($load; "xebec") | ([.[].rps] | median), ([.[].cpu_us] | median), ([.[].memory_mib] | median);
def peer($load; $name): of_peer($load; $name) as $p
  | ($p | map(.rps) | median), beside_xebec($load; $name; .rps), ($p | map(.cpu_us) | median), beside_xebec($load; $name; .cpu_us), ($p | map(.memory_mib) | median);
def good($load; $name): of_peer($load; $name) | map(100 * (.in_time // 0)) | spread;
def where($load; $name): of_peer($load; $name) | map(.split | select(.)) | ([.[].predict_us] | median), ([.[].queue_us] | median), ([.[].overhead_us] | median);
