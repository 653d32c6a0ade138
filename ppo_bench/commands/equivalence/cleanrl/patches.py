"""Names of all patches around a script, and what each of them does."""

SUPPLIED = {
    "weights": "initial weights are loaded when the script makes its optimizer",
    "action noise": "actions are argmax(logits + Gumbel), or mean + std x normal",
    "permutations": "the order of transitions is the permutation of (iteration, epoch)",
    "environment seeds": "environments are reset with the seeds of the training here, and begin as they do here",
    "taught": "which transitions teach RND's predictor",
}
"""What no two programs could be compared without."""
INTERFACES = {
    "writer": "SummaryWriter writes nothing; add_scalar('charts/learning_rate') marks the end of an iteration",
    "float64": "floats are float64 by default, and where the script names float32",
    "gym": "module gym is gymnasium, with old names of wrappers, which have the attributes of what they wrap",
    "normalize": "NormalizeObservation and NormalizeReward are those of gymnasium 0.29.1, which CleanRL pins",
    "vector": "SyncVectorEnv resets an environment in a step of its own, as gymnasium's does since 1.0, and tells sums "
    "of episodes in `final_info`",
    "envpool": "envpool.make has the four values of old",
    "procgen": "procgen's games are EnvPool's",
    "gym 0.23": "wrappers of vectors of environments are those of gym 0.23.1",
    "supersuit": "vectors of games have the four values of old, and no sums of episodes; planes that mark a player are "
    "1, as in SuperSuit 3.4.0",
    "roms": "PettingZoo's games find their ROMs in ale_py",
    "strtobool": "distutils.util.strtobool, which Python 3.12 no longer has",
    "wandb": "wandb records nothing; the last step of Adam ends an iteration",
    "jax": "jax.tree_map is jax.tree.map",
}
"""Of packages as they were when the scripts were written."""
NEUTRALISED = {
    "ddof": "advantages are normalised by the population's standard deviation",
    "clip-eps": "gradients are clipped without the 1e-6 in the denominator of clip_grad_norm_",
    "resets": "a reset is a step of its own, which minibatches leave out where ppo.mask_resets is true, and statistics "
    "of rewards; it clears the carry once more",
    "reward-rule": "NormalizeReward adds an episode's last reward before it forgets the sum, at time limits too",
    "reward-f32": "rewards are rounded to float32 before and after they are normalised",
    "action-f32": "actions of floats are rounded to float32 for the environment",
    "joint-stats": "(several environments) observations and rewards are normalised over all environments, not in each",
    "rank-weights": "(several ranks) gradients are means over all transitions, not means of ranks with unequal numbers",
    "rnd-start": "(RND) environments begin anew after the warm-up; the script's first observation is that of a reset",
    "rnd-next": "(RND) the predictor learns from the observation after each step, and statistics count it, too",
    "rnd-stats": "(RND) statistics count a rollout's observations before its errors, and every transition's reward",
    "rnd-sum": "(RND) the running sum of intrinsic rewards goes over time, not over environments",
    "trxl-first": "(TrXL) at an episode's first step the attention's mean is 0, and not that of the memory's rows",
    "trxl-bootstrap": "(TrXL) the value after a rollout attends to the latest steps, not to those before them",
}
"""Known differences between CleanRL's scripts and this project; `leave_out` leaves one in place."""
