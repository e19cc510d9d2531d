"""Audio as it comes, files and streams, to mono samples at the models' rate; knows nothing of Triton or the engine."""
