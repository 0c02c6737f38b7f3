# The embedded database is for a machine without one; a container is given DATABASE_URL.
FROM node:24-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
COPY patches ./patches
RUN npm ci --omit=dev --omit=optional && npm cache clean --force

FROM node:24-slim
WORKDIR /app
ENV NODE_ENV=production HOST=0.0.0.0 PORT=8080 DATA_DIR=/data
COPY --from=dependencies /app/node_modules ./node_modules
COPY package.json openapi.yaml ./
COPY db ./db
COPY src ./src
# The spool of verdicts that could not be written lies here: give it a volume.
RUN mkdir /data && chown node:node /data
VOLUME /data
USER node
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/healthz`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "src/main.ts"]
