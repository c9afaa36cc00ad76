# What dtplan --man-formats says of the JSON documents is what is written: each key that a command writes is there,
# and each key that is there is written by one of them, but for those of GPUs and of failures.
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
corpus=$root/tests/fuzz/corpus
: >pages
save() { # PAGE: standard input is a document of it
    n=$(wc -l <pages)
    cat >"$n.out"
    printf '%s\t%s\n' "$n.out" "$1" >>pages
}
"$dtplan" models gpt2 --json >own.json
"$dtplan" --model own.json --gpus 8 --batch 64 --json | save plan
"$dtplan" --model llama3-8b --gpus 96 --cluster h100 --json | save plan # with what is unusual
"$dtplan" --model gpt3-1.3b --gpus 16 --nic 4x100 --batch 64 --dropout 0 --optimizer adamw --attention flash2 --memory-limit 20GiB \
    --tokens 1T --json | tee best.json | save plan
"$dtplan" simulate --plan best.json --json | tee one.json | save simulate
"$dtplan" simulate --model gpt2 --gpus 8 --dp 8 --no-failures --tokens 1T --json | save simulate
"$dtplan" sweep --model gpt2 --gpus 8,16 --cluster a100 --price 2 --deadline 100d --tokens 100B --json | save sweep
"$dtplan" sweep --model gpt1t --gpus 8 --cluster a100 --json | save sweep
"$dtplan" explain --plan best.json --json | save explain
"$dtplan" compare best.json one.json --json | save compare
"$dtplan" doctor --model gpt2 --gpus 8 --batch 64 --measured 3s --json | save doctor
"$dtplan" collective all_reduce --bytes 1GB --gpus 16 --cluster h100 --json | save collective
{
    echo id,framework,gpu,gpus,model,tp,pp,dp,microbatch,global_batch,step_s,peak_mem,peak_mem_unit
    for tp in 1 2 4 8; do echo "a$tp,megatron-core,h100,64,llama3-8b,$tp,1,$((64 / tp)),1,512,3.$tp,60,GiB"; done
    echo b,megatron-core,h100,64,llama3-8b,2,2,16,1,512,3.2,60,GiB
    echo c,nothing-like-it,tpu,64,llama3-8b,2,1,32,1,512,3.2,,
} >runs.csv
"$dtplan" validate runs.csv --json 2>/dev/null | save validate
"$dtplan" run --model gpt-check --pp 2 -n 2 --steps 2 --batch 4 --timeline run.json --json 2>/dev/null | save run
"$dtplan" check --gpus 2 --calibration cpu --steps 2 --zero-stage 1 --recompute full --tp 1 --pp 1 --json 2>/dev/null | save check
"$dtplan" replay run.json --json 2>/dev/null | save replay
"$dtplan" replay run.json --kernel-speed 2 --json 2>/dev/null | save replay
"$dtplan" simulate --model gpt2 --gpus 2 --pp 2 --batch 8 --microbatch-size 2 --no-fold --detail op --timeline op.json >/dev/null
"$dtplan" simulate --model gpt2 --gpus 2 --pp 2 --batch 8 --microbatch-size 2 --no-fold --detail op --schedule gpipe \
    --cluster h100 --timeline other.json >/dev/null
"$dtplan" compare op.json other.json --json | save "compare of traces"
"$dtplan" infer op.json --json 2>/dev/null | save infer
for file in fuzz_logs/megatron.log fuzz_logs/nccl.log fuzz_iterations/two.csv fuzz_workload/two.txt fuzz_et/attrs.json fuzz_aicb/good.csv fuzz_jobs/acme.csv \
    fuzz_topology/mesh.xml fuzz_config/launch.txt run.json; do
    [ -e "$file" ] || file=$corpus/$file
    "$dtplan" trace "$file" --time-unit us --json 2>/dev/null | save trace
done
cat >jobs.csv <<'EOF'
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u,v,8,1,1,COMPLETED,2020-06-09 18:00:00,2020-06-09 18:00:00,2020-06-09 18:00:10,10,0
EOF
"$dtplan" jobs jobs.csv --nodes 2 --json | save jobs
printf 'HYBRID_TRANSFORMER model_parallel_NPU_group: 8 all_gpus: 16\n1\nlayer -1 1000 ALLREDUCE 1048576 1000 NONE 0 1000 ALLREDUCE 8388608 10\n' >work
"$dtplan" trace work --cluster dgx-h100 --time-unit us --json | save trace
"$dtplan" simulate --model gpt2 --gpus 8 --batch 16 --timeline graph.et >/dev/null
"$dtplan" trace graph.0.et --json | save trace
for verb in models clusters frameworks schedules collectives; do
    "$dtplan" "$verb" --json | save "models, clusters, frameworks, schedules, collectives"
done
"$dtplan" collectives all_reduce --json | save "collectives KIND"
"$dtplan" schedules zb-v --pp 2 --microbatches 4 --json | save "schedules NAME"
"$dtplan" --man-formats >manual
cat >compare.py <<'EOF'
import json, re, sys

# Written only where there is a GPU, a failure, a trace of a GPU, no memory for a simulation, or a plan that lost.
elsewhere = re.compile(r"""check --shadow |run (failure|host_s|graph|overhead|loss_scale|skipped|shadow|actions)
|check (versions|rows\[\]\.(clock_hz|power_w|host_s|graph_share|failure))
|replay (ranks\[\]\.launch_bound\[\]|ranks\[\]\.collectives|warnings\[\]|ranks\[\]\.steps\[\]\.host_s|pipeline|network)
|infer (cluster|framework)|plan search\.too_large|(plan|sweep|simulate|compare) .*best\.why_not""".replace("\n", ""))

pages, page, entry, inputs, section = {}, None, None, set(), None
for line in open("manual"):
    line = line.rstrip("\n").replace("\\-", "-").replace("\\&", "")
    if line.startswith(".SH "):
        section, page = line[4:].strip('"'), None
        inputs.add(section)
    elif line.startswith(".SS ") and section == "OUTPUT":
        page, entry = pages.setdefault(line[4:].strip('"'), []), None
    elif page is not None and line.startswith("\\fB"):
        entry = [line[3:-3], ""]
        page.append(entry)
    elif page is not None and entry and not line.startswith("."):
        entry[1] += " " + line

def once(pairs):
    for k in {k for k, _ in pairs if [q for q, _ in pairs].count(k) > 1}:
        print("twice:", k)
    return dict(pairs)

def keys(name):
    """path: None, or the input page whose form it has"""
    out = {}
    for path, text in pages[name]:
        form = re.search(r"(?:of the form|the keys) of (\S+)\.$", text)
        form = form and form.group(1)
        for p in ["a" + path[3:], "b" + path[3:]] if path.startswith("a|b") else [path]:
            here = "" if p == "..." else p
            if form in pages:
                out[here] = None
                for k, f in keys(form).items():
                    out[".".join(x for x in (here, k) if x)] = f
            else:
                out[here] = form
    return out

def walk(x, path, out):
    if isinstance(x, dict):
        for k, v in x.items():
            walk(v, path + "." + k if path else k, out)
    elif isinstance(x, list):
        for v in x:
            walk(v, path + "[]", out)
        if not x:
            out.add(path + "[]")
        return
    if path:
        out.add(path)

def pattern(path):
    return re.compile("[^.]*".join(map(re.escape, path.split("*"))) + r"(\[\])?")

seen = {}
for line in open("pages"):
    file, name = line.rstrip("\n").split("\t")
    text = open(file).read()
    try:
        doc = json.loads(text if name != "run" else text.strip().split("\n")[-1], object_pairs_hook=once)
    except ValueError:
        print(name, "wrote no JSON:", text[:60])
        continue
    written = set()
    walk(doc, "", written)
    table = [(pattern(p), p, form) for p, form in keys(name).items()]
    for path in sorted(written):
        inside = any(p.startswith(path + ".") or p.startswith(path + "[]") or p.startswith(path + "*")
                     for _, p, _ in table)
        found = False
        for rule, p, form in table:
            whole = rule.fullmatch(path)
            under = form and (m := rule.match(path)) and path[m.end():m.end() + 1] == "."
            if whole or under:
                seen.setdefault(name, set()).add(p)
                found = True
        if not found and not inside:
            print(name, "writes", path)
for name in pages:
    if name.isupper():
        continue
    for p in keys(name):
        if p and p not in seen.get(name, ()) and not elsewhere.match(name + " " + p):
            inside = any(q.startswith(p) for q in seen.get(name, ()))
            if not inside:
                print(name, "does not write", p)
print(len(seen), "documents")
EOF
python3 compare.py
