import { createRequire } from 'node:module';
import { join } from 'node:path';

import { drive } from '../typescript.mjs';

// The SDK is where the driver is started, not beside it.
const require = createRequire(join(process.cwd(), 'package.json'));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

await drive({
  Client,
  Transport: StreamableHTTPClientTransport,
  call: (client, params, options) => client.callTool(params, options),
  onLog: (client, handler) => client.setNotificationHandler('notifications/message', handler),
});
