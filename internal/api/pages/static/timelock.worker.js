// The worker of sealAside.

import { sealFor } from './timelock.js';

onmessage = async ({ data }) => {
  try {
    postMessage({ seal: await sealFor(...data) });
  } catch (fault) {
    postMessage({ fault: fault.message });
  }
};
